"""Occupancy beside NVIDIA's own header, cuda_occupancy.h, on thousands of launches."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from kdsl.inspect.resources import capability, occupancy

PROGRAM = r"""
#include <cstdio>
#include <climits>
#include <cuda_occupancy.h>
int main() {
  cudaOccDeviceProp p; cudaOccFuncAttributes a; cudaOccDeviceState s; cudaOccResult r;
  int registers, threads, barriers; long shared, per_sm, optin, reserved; int warps;
  p.maxThreadsPerBlock = 1024; p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32;
  p.sharedMemPerBlock = 48 * 1024; p.numSms = 100;
  while (scanf("%d %d %d %ld %ld %ld %d %d %ld %d", &p.computeMajor, &p.computeMinor, &warps, &per_sm, &optin,
               &reserved, &registers, &threads, &shared, &barriers) == 10) {
    p.maxThreadsPerMultiprocessor = warps * 32; p.sharedMemPerMultiprocessor = per_sm;
    p.sharedMemPerBlockOptin = optin; p.reservedSharedMemPerBlock = reserved;
    a.maxThreadsPerBlock = INT_MAX; a.numRegs = registers; a.sharedSizeBytes = 0;
    a.partitionedGCConfig = PARTITIONED_GC_OFF; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    a.maxDynamicSharedSizeBytes = shared; a.numBlockBarriers = barriers; a.virtualResourceCount = 0;
    cudaOccError e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared);
    printf("%d %d %d %d %d %d\n", (int)e, r.activeBlocksPerMultiprocessor, r.blockLimitRegs,
           r.blockLimitSharedMem, r.blockLimitWarps, (int)r.allocatedSharedMemPerBlock);
  }
}
"""


@pytest.fixture(scope="module")
def calculator(compiler, tmp_path_factory):
    folder = tmp_path_factory.mktemp("occupancy")
    header = next(Path(compiler.toolkit.root).glob("**/include/cuda_occupancy.h"), None)
    if header is None:
        pytest.skip("this toolkit has no cuda_occupancy.h")
    (folder / "main.cpp").write_text(PROGRAM)
    command = [compiler.host.path, "-O1", "-w", "-I", str(header.parent), "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "main"


def test_every_launch_agrees(calculator, targets):
    choose = random.Random(7)
    names = [name for name in targets if name.startswith("sm_")]
    launches = []
    for _ in range(4000):
        target = targets[choose.choice(names)]
        most = int(target.fields["shared_bytes_per_block"])
        shared = choose.choice((0, 1, most, most + 1, choose.randrange(most + 2000)))
        threads = choose.choice((32, 96, 128, 160, 256, 384, 512, 1024, choose.randint(1, 1024)))
        launches.append((target, choose.randint(1, 255), threads, shared, choose.randint(0, 16)))
    fields = ("warps_per_sm", "shared_per_sm", "shared_bytes_per_block", "shared_reserved")
    lines = [
        " ".join(map(str, (*capability(t), *(int(t.fields[f]) for f in fields), *rest)))
        for t, *rest in launches
    ]
    done = subprocess.run([calculator], input="\n".join(lines), capture_output=True, text=True, check=True)
    for (target, registers, threads, shared, barriers), row in zip(
        launches, done.stdout.splitlines(), strict=True
    ):
        fault, blocks, by_registers, by_shared, by_warps, allocated = map(int, row.split())
        found = occupancy(target, registers, threads, shared, barriers)
        told = (target.name, registers, threads, shared, barriers)
        assert fault == 0 and found.blocks == blocks, told
        assert found.limits["registers"] == by_registers and found.limits["warps"] == by_warps, told
        assert found.limits["shared"] == by_shared and found.shared_per_block == allocated, told
