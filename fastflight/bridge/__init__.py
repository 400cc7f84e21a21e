"""Network ports in front of a device, so that other tools share it: RFC 2217, a raw socket, and one for viewers."""

from fastflight.bridge.bridge import Bridge, Ports
from fastflight.bridge.front import DeviceFront

__all__ = ["Bridge", "DeviceFront", "Ports"]
