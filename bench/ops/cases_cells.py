# Cases of the op benchmark: recurrent cells run over a sequence. Muster uses mu_scan in a traced function
# (calls_cells.c), TensorFlow tf.scan, PyTorch a loop over its steps; all three project the whole sequence first. See
# case.py.
from case import INPUTS, Input, case

STEPS = {"1k": (8, 4, 8), "64k": (16, 16, 64), "4m": (64, 64, 256), "64m": (256, 128, 512)}  # time, batch, width


def cell_input(*axes, high=0.2):
    """t, b, w: time, batch and width; f: four widths; e: three."""
    def shape(size):
        time, batch, width = STEPS[size]
        named = {"t": time, "b": batch, "w": width, "f": 4 * width, "e": 3 * width}
        return tuple(named[axis] for axis in axes)
    return Input("float32", shape, -high, high)


INPUTS |= {"xs": cell_input("t", "b", "w", high=1), "h0": cell_input("b", "w"), "c0": cell_input("b", "w"),
           "wx": cell_input("w", "f"), "wh": cell_input("w", "f"), "gb": cell_input("f"), "wxt": cell_input("w", "w"),
           "wht": cell_input("w", "w"), "tb": cell_input("w"), "wxe": cell_input("w", "e"), "whe": cell_input("w", "e"),
           "eb": cell_input("e")}

TORCH_LSTM = """
def steps(xs, h, c):
    kept = []
    for z in (torch.matmul(xs, wx) + gb).unbind(0):
        i, f, g, o = torch.addmm(z, h, wh).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        kept.append(h)
    return torch.stack(kept)
"""
TORCH_GRU = """
def steps(xs, h):
    kept = []
    for x in (torch.matmul(xs, wxe) + eb).unbind(0):
        (xu, xr, xn), (hu, hr, hn) = x.chunk(3, 1), torch.mm(h, whe).chunk(3, 1)
        n = torch.tanh(torch.addcmul(xn, torch.sigmoid(xr + hr), hn))
        h = torch.lerp(n, h, torch.sigmoid(xu + hu))
        kept.append(h)
    return torch.stack(kept)
"""
TORCH_TANH = """
def steps(xs, h):
    kept = []
    for z in (torch.matmul(xs, wxt) + tb).unbind(0):
        h = torch.tanh(torch.addmm(z, h, wht))
        kept.append(h)
    return torch.stack(kept)
"""
TF_LSTM = """
def step(state, z):
    h, c = state
    i, f, g, o = tf.split(z + tf.matmul(h, wh), 4, 1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c
"""
TF_GRU = """
def step(h, x):
    (xu, xr, xn), (hu, hr, hn) = tf.split(x, 3, 1), tf.split(tf.matmul(h, whe), 3, 1)
    n = tf.tanh(xn + tf.sigmoid(xr + hr) * hn)
    return n + tf.sigmoid(xu + hu) * (h - n)
"""


def cells():
    case("lstm", "xs h0 c0 wx wh gb", "steps(xs, h0, c0)", "tf.scan(step, tf.matmul(xs, wx) + gb, (h0, c0))[0]", "math", out=False,
         setup=TORCH_LSTM, tf_setup=TF_LSTM, largest="4m")
    case("gru", "xs h0 c0 wxe whe eb", "steps(xs, h0)", "tf.scan(step, tf.matmul(xs, wxe) + eb, h0)", "math", out=False,
         setup=TORCH_GRU, tf_setup=TF_GRU, largest="4m")
    case("tanh_cell", "xs h0 c0 wxt wht tb", "steps(xs, h0)",
         "tf.scan(lambda h, z: tf.tanh(z + tf.matmul(h, wht)), tf.matmul(xs, wxt) + tb, h0)", "math", out=False,
         setup=TORCH_TANH, largest="4m")


cells()
