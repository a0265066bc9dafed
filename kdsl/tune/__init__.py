"""The values of `choose` that are fastest on a target: points judged, validated and timed, the winner as a diff.

`prepare` and `patch` need the compiler and no device; `walk` needs the device and no compiler.
"""
