"""From rules to bundles. `bundle_for` answers a call; `build` makes what `kdsl lower` writes."""

from kdsl.driver.compile import ContractFailed, NoRule, RulesWrong, build, bundle_for, plan_of

__all__ = ["ContractFailed", "NoRule", "RulesWrong", "build", "bundle_for", "plan_of"]
