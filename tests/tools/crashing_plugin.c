// A PJRT plugin that ends its process when it is opened, as one does that finds another driver than it was made for.
#include <stdlib.h>

__attribute__((visibility("default"))) const void *GetPjrtApi(void);

const void *GetPjrtApi(void)
{
    abort();
}
