"""What a release promises, given what it makes public: the Semi-DP accountant.

Events say what was measured, moves what may change while the public facts stay, policies which moves are compared, and
conversions what that means as an epsilon. Proofs are in the notes beside the modules.
"""

from das.accounting.agreement import refuse_disagreement
from das.accounting.conditioning import (
    Conditioned,
    SamplerError,
    conditioned_gaussian,
    conditioned_geometric,
    facts_digest,
    refuse_undeclared,
    with_sampler_error_upper,
)
from das.accounting.conversion import (
    bun_steinke_epsilon_upper,
    delta_upper,
    epsilon_upper,
    gdp_delta_upper,
    gdp_epsilon_upper,
    gdp_mu_lower,
    mu_of_pure_upper,
    rho_lower,
    rho_of_pure_upper,
)
from das.accounting.events import (
    Event,
    ExactEvent,
    GaussianEvent,
    KNormEvent,
    LaplaceEvent,
    NotSupported,
    UnknownEvent,
)
from das.accounting.hierarchy import HierarchicalPlan, compose
from das.accounting.moves import Move, Secret, adjacency, determined_queries
from das.accounting.pld import LossDistribution, loss_distribution
from das.accounting.policies import (
    Guarantee,
    Policy,
    attribute_secrets,
    geography_secrets,
    guarantee,
    nominal_secret_guarantee,
    secret_guarantee,
)
from das.accounting.small_table.dataspace import TableFacts, data_space, semi_adjacency
from das.accounting.small_table.enumeration import irreducible_moves, net_moves, record_classes
from das.accounting.small_table.margins import two_way_adjacency
from das.accounting.small_table.plan import TablePlan
from das.accounting.tight import move_distribution, tight_epsilon_upper
from das.accounting.vacuity import Vacuity, nested_vacuity, public_workloads, table_vacuity

__all__ = [
    "Conditioned",
    "Event",
    "ExactEvent",
    "GaussianEvent",
    "Guarantee",
    "HierarchicalPlan",
    "KNormEvent",
    "LaplaceEvent",
    "LossDistribution",
    "Move",
    "NotSupported",
    "Policy",
    "SamplerError",
    "Secret",
    "TableFacts",
    "TablePlan",
    "UnknownEvent",
    "Vacuity",
    "adjacency",
    "attribute_secrets",
    "bun_steinke_epsilon_upper",
    "compose",
    "conditioned_gaussian",
    "conditioned_geometric",
    "data_space",
    "delta_upper",
    "determined_queries",
    "epsilon_upper",
    "facts_digest",
    "gdp_delta_upper",
    "gdp_epsilon_upper",
    "gdp_mu_lower",
    "geography_secrets",
    "guarantee",
    "irreducible_moves",
    "loss_distribution",
    "move_distribution",
    "mu_of_pure_upper",
    "nested_vacuity",
    "net_moves",
    "nominal_secret_guarantee",
    "public_workloads",
    "record_classes",
    "refuse_disagreement",
    "refuse_undeclared",
    "rho_lower",
    "rho_of_pure_upper",
    "secret_guarantee",
    "semi_adjacency",
    "table_vacuity",
    "tight_epsilon_upper",
    "two_way_adjacency",
    "with_sampler_error_upper",
]
