"""The checks of `tests/gpu/run.py`: what is run on a device, one module for each kind."""
