"""A TCP connection that misbehaves on purpose, at places that are decided beforehand.

    with ChaosProxy("127.0.0.1", 8815) as proxy:
        client = FastFlightClient(f"grpc://127.0.0.1:{proxy.port}")
        proxy.strike("cut:back@1500")         # when 1,500 bytes more have come back, the connection is reset
        ...
        proxy.mend()                          # no fault is in force any more

`fault` has the kinds of faults and how they are written, `course` what they do to a stream of bytes, without I/O.
"""

from tests.support.chaos.course import Break, Course, Pass, Step, Wait
from tests.support.chaos.fault import ENDINGS, Fault, Kind, Way, drawn
from tests.support.chaos.proxy import ChaosProxy

__all__ = [
    "ENDINGS",
    "Break",
    "ChaosProxy",
    "Course",
    "Fault",
    "Kind",
    "Pass",
    "Step",
    "Wait",
    "Way",
    "drawn",
]
