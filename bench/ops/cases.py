# The cases of the op benchmark by family, in the order in which they run. case.py describes a case.
import cases_elements  # noqa: F401
import cases_shapes  # noqa: F401
import cases_index  # noqa: F401
import cases_nn  # noqa: F401
import cases_grad  # noqa: F401
import cases_cells  # noqa: F401
import cases_types  # noqa: F401
import cases_order  # noqa: F401
import cases_linear  # noqa: F401
from case import CASES, INPUTS, SIDES, SIZES, square  # noqa: F401
