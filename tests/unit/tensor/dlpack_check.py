# dlpack_check.py LIBRARY: the same memory seen by Muster, NumPy and PyTorch.
import ctypes
import sys

import numpy

library = ctypes.CDLL(sys.argv[1])
for name, result in {"mu_to_dlpack": ctypes.c_void_p, "mu_from_dlpack": ctypes.c_void_p, "mu_vector_f32": ctypes.c_void_p,
                     "mu_tensor_data": ctypes.c_void_p, "mu_pool_open": ctypes.c_void_p}.items():
    getattr(library, name).restype = result
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
read_capsule = ctypes.pythonapi.PyCapsule_GetPointer
read_capsule.restype = ctypes.c_void_p
read_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]
rename_capsule = ctypes.pythonapi.PyCapsule_SetName
rename_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Lender:
    """What NumPy and PyTorch ask of whoever has the memory."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        versioned = keywords.get("max_version") is not None
        pointer = library.mu_to_dlpack(ctypes.c_void_p(self.tensor), versioned)
        return new_capsule(pointer, b"dltensor_versioned" if versioned else b"dltensor", None)


USED = b"used_dltensor"  # the name must outlive the capsule


def borrow(array):
    capsule = array.__dlpack__()
    tensor = library.mu_from_dlpack(ctypes.c_void_p(read_capsule(capsule, b"dltensor")), False)
    rename_capsule(capsule, USED)
    return tensor


def address(tensor):
    return library.mu_tensor_data(ctypes.c_void_p(tensor))


def main():
    library.mu_init_with(None)
    pool = library.mu_pool_open()
    values = (ctypes.c_float * 4)(1, 2, 3, 4)
    tensor = library.mu_vector_f32(ctypes.c_int64(4), values)
    array = numpy.from_dlpack(Lender(tensor))
    assert array.tolist() == [1, 2, 3, 4] and array.ctypes.data == address(tensor)
    own = numpy.arange(6, dtype=numpy.float64).reshape(2, 3)
    assert address(borrow(own)) == own.ctypes.data
    turned = borrow(own.T)
    seen = numpy.ctypeslib.as_array(ctypes.cast(address(turned), ctypes.POINTER(ctypes.c_double)), (3, 2))
    assert (seen == own.T).all() and address(turned) != own.ctypes.data
    with_torch = False
    try:
        import torch
        with_torch = True
    except ImportError:
        pass
    if with_torch:
        from_us = torch.from_dlpack(Lender(tensor))
        assert from_us.tolist() == [1, 2, 3, 4] and from_us.data_ptr() == address(tensor)
        theirs = torch.arange(5, dtype=torch.bfloat16)
        assert address(borrow(theirs)) == theirs.data_ptr()
        del from_us, theirs
    # The elements outlive the pool as long as an array looks at them.
    library.mu_pool_close(ctypes.c_void_p(pool))
    assert array.tolist() == [1, 2, 3, 4]
    del array
    print("dlpack: NumPy" + (" and PyTorch" if with_torch else "") + " see the same memory")
    return library.mu_exit(True)


sys.exit(main())
