// Names an object's type, for messages about an argument of the wrong type.
#ifndef MU_SRC_BASE_TYPE_NAME_H
#define MU_SRC_BASE_TYPE_NAME_H

// mu__type_name returns the name of an object's type ("variable"), "NULL", or "no object of Muster". The argument
// must point to at least the size of a pointer.
const char *mu__type_name(const void *object);

#endif
