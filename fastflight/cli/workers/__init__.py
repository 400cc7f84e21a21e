"""Several processes behind one address: a front that answers, and workers that have the devices.

`share` says which worker has which device, `pool` starts the workers and keeps them running. `forward` makes sources,
and `actions` actions, of what they serve; `front` puts it together. `python -m fastflight.cli.workers` is a worker.
"""
