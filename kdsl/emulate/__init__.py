"""Generated CUDA source run on the CPU, one warp after the other in lockstep, with every access checked.

`translate` turns the CUDA text into C++ over the headers of `device/`; the runner in `runtime/` executes its
threads as coroutines and reports what no kernel may do: races, missed barriers, reads of what nobody wrote,
accesses out of bounds. Evidence level `simulated`.
"""
