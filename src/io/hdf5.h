// Numbers of the HDF5 file format, version 3.0 of its specification, that reader and writer share.
#ifndef MU_SRC_IO_HDF5_H
#define MU_SRC_IO_HDF5_H

#include <stddef.h>
#include <stdint.h>

#define MU_HDF5_SIGNATURE "\x89HDF\r\n\x1a\n"
#define MU_HDF5_UNDEFINED UINT64_MAX // an address of nothing

// Messages of an object header.
enum {
    MU_HDF5_DATASPACE = 1,
    MU_HDF5_LINK_INFO = 2,
    MU_HDF5_DATATYPE = 3,
    MU_HDF5_FILL_VALUE = 5,
    MU_HDF5_LINK = 6,
    MU_HDF5_EXTERNAL_FILES = 7,
    MU_HDF5_LAYOUT = 8,
    MU_HDF5_GROUP_INFO = 10,
    MU_HDF5_FILTERS = 11,
    MU_HDF5_ATTRIBUTE = 12,
    MU_HDF5_CONTINUATION = 16,
    MU_HDF5_SYMBOL_TABLE = 17,
};

// Classes of datatypes.
enum {
    MU_HDF5_INTEGER = 0,
    MU_HDF5_FLOAT = 1,
    MU_HDF5_STRING = 3,
    MU_HDF5_OPAQUE = 5,
    MU_HDF5_ENUM = 8,
    MU_HDF5_VARIABLE = 9
};

#endif
