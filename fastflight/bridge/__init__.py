"""Network ports in front of a device, so that other tools share it: RFC 2217 and a raw socket."""
