"""Several servers that share devices: which server owns a device, and the lease by which it does. No I/O so far."""
