# Cases of the op benchmark: linear algebra besides plain products (einsum, tensordot, norms, factorisations,
# triangular systems), and image resizing. See case.py.
from case import INPUTS, Input, SIDES, batched, case, heads, of

INPUTS |= {
    "pd": Input("float32", of("d", "d"), -1, 1, "diagonal"), "pdb": Input("float32", lambda size: batched(size), -1, 1, "diagonal"),
    "pde": Input("float64", lambda size: (min(SIDES[size], 2048),) * 2, -1, 1, "diagonal"),
    "pds": Input("float32", lambda size: small(size), -1, 1, "diagonal"), "sb": Input("float32", lambda size: small(size)),
    "c4": Input("float32", lambda size: (SIDES[size] // 4, 4, SIDES[size])), "d4": Input("float32", lambda size: (4, SIDES[size], SIDES[size] // 4)),
}
NCHW = "x = x.permute(0, 3, 1, 2)"
NHWC = "y.permute(0, 2, 3, 1)"


def small(size):
    """Batches of small matrices."""
    return {"1k": (16, 4, 4), "64k": (256, 8, 8), "4m": (4096, 16, 16), "64m": (65536, 16, 16)}[size]


def contractions():
    for name, inputs, equation in (
            ("product", "a b", "ij,jk->ik"), ("turned", "a b", "ij,kj->ki"), ("batched", "ba bb", "bij,bjk->bik"),
            ("scores", "qu ke", "bhid,bhjd->bhij"), ("heads", "c4 d4", "ihd,hdk->ik")):
        x, y = inputs.split()
        case(f"einsum_{name}", inputs, f"torch.einsum('{equation}', {x}, {y})", f"tf.einsum('{equation}', {x}, {y})", "product",
             out=False, tolerance=1e-4)
    case("einsum_dots", "a b", "torch.einsum('ij,ij->i', a, b)", "tf.einsum('ij,ij->i', a, b)", out=False)
    case("einsum_trace", "a b", "torch.einsum('ij,ji->', a, b)", "tf.einsum('ij,ji->', a, b)", "math", out=False)
    case("einsum_sum", "a", "torch.einsum('ij->j', a)", "tf.einsum('ij->j', a)", out=False)
    case("einsum_outer", "row row2", "torch.einsum('i,j->ij', row, row2)", "tf.einsum('i,j->ij', row, row2)", out=False)
    case("tensordot", "a b", "torch.tensordot(a, b, 1)", "tf.tensordot(a, b, 1)", "product", out=False, tolerance=1e-4)
    case("tensordot_2", "c4 d4", "torch.tensordot(c4, d4, 2)", "tf.tensordot(c4, d4, 2)", "product", out=False, tolerance=1e-4)


def norms():
    for name, order in (("1", "1"), ("2", "2"), ("inf", "float('inf')"), ("3", "3")):
        case(f"norm_{name}", "a", f"torch.linalg.vector_norm(a, {order}, dim=1)",
             f"tf.norm(a, ord={order.replace('float', 'np.float64')}, axis=1)", "math" if name == "3" else "memory",
             tolerance=1e-4)
    # PyTorch adds 16 million squares up in fewer running sums: 5e-4 from the others at 64 MB.
    case("norm_all", "a", "torch.linalg.vector_norm(a)", "tf.norm(a)", tolerance=1e-3)
    case("norm_frobenius", "ba", "torch.linalg.matrix_norm(ba)", "tf.norm(ba, ord='fro', axis=[1, 2])", tolerance=1e-4)
    for name, order in (("matrix_1", "1"), ("matrix_inf", "float('inf')")):
        case(f"norm_{name}", "a", f"torch.linalg.matrix_norm(a, {order})",
             f"tf.norm(a, ord={order.replace('float', 'np.float64')}, axis=[0, 1])", tolerance=1e-4)
    case("norm_matrix_2", "a", "torch.linalg.matrix_norm(a, 2)", "tf.norm(a, ord=2, axis=[0, 1])", "math", largest="64k")


def systems():
    for name, x in (("", "pd"), ("_batched", "pdb"), ("_small", "pds"), ("_f64", "pde")):
        case(f"cholesky{name}", x, f"torch.linalg.cholesky({x})", f"raw.Cholesky(input={x})", "product", call="cholesky", tolerance=1e-4)
    solve, tf = "torch.linalg.solve_triangular({0}, {1}, upper={2})", "raw.MatrixTriangularSolve(matrix={}, rhs={}, lower={}, adjoint={})"
    for name, a, b in (("", "pd", "b"), ("_batched", "pdb", "bb"), ("_small", "pds", "sb"), ("_vector", "pd", "vec")):
        case(f"triangular_solve{name}", f"{a} {b}", solve.format(a, b, False), tf.format(a, b, True, False), "product",
             call="solve_lower", tolerance=1e-4)
    case("triangular_solve_upper", "pd b", solve.format("pd", "b", True), tf.format("pd", "b", False, False), "product", call="solve_upper",
         tolerance=1e-4)
    case("triangular_solve_adjoint", "pd b", solve.format("pd.mT", "b", True), tf.format("pd", "b", True, True), "product",
         call="solve_adjoint", tolerance=1e-4)


def images():
    larger, smaller = "(2 * x.shape[-2], 2 * x.shape[-1])", "(x.shape[-2] // 2 - 1, x.shape[-1] // 2 - 1)"
    for name, size, to in (("larger", larger, "[2 * x.shape[1], 2 * x.shape[2]]"),
                           ("smaller", smaller, "[x.shape[1] // 2 - 1, x.shape[2] // 2 - 1]")):
        case(f"resize_bilinear_{name}", "x", f"F.interpolate(x, {size}, mode='bilinear')",
             f"raw.ResizeBilinear(images=x, size={to}, half_pixel_centers=True)", "math", out=False, setup=NCHW, after=NHWC,
             tolerance=1e-4)
        case(f"resize_nearest_{name}", "x", f"F.interpolate(x, {size}, mode='nearest-exact')",
             f"raw.ResizeNearestNeighbor(images=x, size={to}, half_pixel_centers=True)", out=False, setup=NCHW, after=NHWC)


for family in (contractions, norms, systems, images):
    family()
