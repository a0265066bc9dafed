"""One set of probes for all tests of the folder: drawing is cheap, but the oracle's answers add up."""

import pytest

from kdsl.validate.probes import Probe, make_probes

SEED = 20_260


@pytest.fixture(scope="session")
def drawn_probes() -> dict[str, Probe]:
    return {probe.name: probe for probe in make_probes(SEED)}
