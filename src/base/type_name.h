// What an object is, for messages about one that stands where another kind was expected.
#ifndef MU_SRC_BASE_TYPE_NAME_H
#define MU_SRC_BASE_TYPE_NAME_H

// mu__type_name returns the name of an object's type ("variable"), "NULL", or "no object of Muster". The thing must
// have at least the size of a pointer.
const char *mu__type_name(const void *object);

#endif
