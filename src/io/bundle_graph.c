// The object graph of TensorFlow's checkpoints: which attribute of which object a tensor was.
//
// Keras keeps some weights under private attributes and has changed which ("_kernel", "kernel"). So a graph that is
// written has every edge with the underscore and without it, and a path that is looked up may differ in that.
#include "io/path_tree.h"
#include "io/tensor_bundle.h"

// ---- Looking up ---------------------------------------------------------------------------------

static const Mu__BundleObject *node_at(const Mu__BundleGraph *graph, int32_t id)
{
    return id >= 0 && (size_t)id < graph->n_nodes ? graph->nodes[id] : NULL;
}

static bool is_name(const char *local_name, const char *name, size_t length)
{
    return strncmp(local_name, name, length) == 0 && local_name[length] == '\0';
}

// The child under a name, with or without an underscore in front of it.
static const Mu__BundleObject *child_named(const Mu__BundleGraph *graph, const Mu__BundleObject *node, const char *name,
                                           size_t length)
{
    const Mu__BundleReference *other = NULL;
    for (size_t i = 0; i < node->n_children; i++) {
        const Mu__BundleReference *child = node->children[i];
        if (is_name(child->local_name, name, length))
            return node_at(graph, child->node_id);
        if ((child->local_name[0] == '_' && is_name(child->local_name + 1, name, length)) ||
            (*name == '_' && is_name(child->local_name, name + 1, length - 1)))
            other = child;
    }
    return other ? node_at(graph, other->node_id) : NULL;
}

static const char *find_from(const Mu__BundleGraph *graph, const Mu__BundleObject *node, const char *path)
{
    while (node && *path) {
        const size_t length = strcspn(path, "/");
        node = child_named(graph, node, path, length);
        path += length + (path[length] == '/');
    }
    for (size_t i = 0; node && i < node->n_attributes; i++)
        if (strcmp(node->attributes[i]->name, "VARIABLE_VALUE") == 0)
            return node->attributes[i]->checkpoint_key;
    return NULL;
}

// The one variable whose full name is, or ends with, a name; NULL: none or several.
static const char *find_by_name(const Mu__BundleGraph *graph, const char *name)
{
    const char *found = NULL;
    const size_t n = strlen(name);
    for (size_t i = 0; i < graph->n_nodes; i++)
        for (size_t k = 0; k < graph->nodes[i]->n_attributes; k++) {
            const Mu__BundleAttribute *attribute = graph->nodes[i]->attributes[k];
            const size_t length = strlen(attribute->full_name);
            if (length < n || strcmp(attribute->full_name + length - n, name) != 0 ||
                (length > n && attribute->full_name[length - n - 1] != '/'))
                continue;
            if (found)
                return NULL;
            found = attribute->checkpoint_key;
        }
    return found;
}

const char *mu__bundle_find(const Mu__BundleGraph *graph, const char *path)
{
    const Mu__BundleObject *root = node_at(graph, 0);
    const char *found = root ? find_from(graph, root, path) : NULL;
    if (!found && root)
        found = find_from(graph, child_named(graph, root, "model", strlen("model")), path);
    return found ? found : find_by_name(graph, path);
}

// ---- Making a graph -----------------------------------------------------------------------------

// Where the name of a hash table's attribute ends in the key of one of its two tensors; NULL: of a variable.
static const char *table_end(const char *key)
{
    const char *table = key ? strstr(key, MU_BUNDLE_TABLE) : NULL;
    return table ? table + strlen(MU_BUNDLE_TABLE) : NULL;
}

static mu_status add_key(mu_path_tree *t, const char *key)
{
    const char *end = strstr(key, table_end(key) ? MU_BUNDLE_TABLE : MU_BUNDLE_SUFFIX), *at = key;
    int parent = 0;
    while (end && at < end) {
        const size_t length = MU_MIN(strcspn(at, "/"), (size_t)(end - at));
        int child = mu__path_child(t, parent, at, length);
        if (child < 0) {
            child = (int)t->n;
            MU_TRY(mu__path_add(t, parent, at, length));
        }
        parent = child;
        at += length + 1;
    }
    if (end)
        t->items[parent].key = key;
    return MU_OK;
}

// Storage of the message of a graph, all of it from one block of each kind.
typedef struct message {
    Mu__BundleObject *objects, **object_list;
    Mu__BundleAttribute *attributes, **attribute_list;
    Mu__BundleReference *references, **reference_list;
    char *names; // of the edges, and the keys of tables
    size_t n_references, n_attributes, names_used;
} message;

static void add_reference(message *m, Mu__BundleObject *object, int id, const char *name, size_t length)
{
    Mu__BundleReference *reference = &m->references[m->n_references];
    *reference = (Mu__BundleReference)MU__BUNDLE_REFERENCE__INIT;
    reference->node_id = id;
    reference->local_name = m->names + m->names_used;
    m->names_used += (size_t)sprintf(reference->local_name, "%.*s", (int)length, name) + 1;
    m->reference_list[m->n_references++] = reference;
    object->n_children++;
}

// The edges to a node's children under both of their names.
static void add_references(const mu_path_tree *t, int i, message *m, Mu__BundleObject *object)
{
    for (int c = t->items[i].first; c >= 0; c = t->items[c].next) {
        const mu_path_node *child = &t->items[c];
        const bool is_private = *child->name == '_', is_number = *child->name >= '0' && *child->name <= '9';
        char other[260];
        snprintf(other, sizeof other, "%s%.*s", is_private ? "" : "_", (int)(child->length - is_private),
                 child->name + is_private);
        add_reference(m, object, c, child->name, child->length);
        if (!is_number && mu__path_child(t, i, other, strlen(other)) < 0)
            add_reference(m, object, c, other, strlen(other));
    }
}

static void add_attribute(const mu_path_node *n, message *m, Mu__BundleObject *object)
{
    static char variable[] = "VARIABLE_VALUE", table[] = "table";
    Mu__BundleAttribute *attribute = &m->attributes[m->n_attributes];
    const char *end = table_end(n->key);
    *attribute = (Mu__BundleAttribute)MU__BUNDLE_ATTRIBUTE__INIT;
    attribute->name = end ? table : variable;
    if (end) {
        attribute->checkpoint_key = m->names + m->names_used;
        m->names_used += (size_t)sprintf(attribute->checkpoint_key, "%.*s", (int)(end - n->key), n->key) + 1;
    } else {
        attribute->full_name = attribute->checkpoint_key = (char *)(uintptr_t)n->key;
    }
    object->attributes = &m->attribute_list[m->n_attributes];
    object->n_attributes = 1;
    m->attribute_list[m->n_attributes++] = attribute;
}

// The root has the edges of its child "model" too, so that both tf.train.Checkpoint(model=model) and
// tf.train.Checkpoint(model) find the variables.
static void fill(const mu_path_tree *t, message *m, Mu__BundleBool *yes)
{
    for (size_t i = 0; i < t->n; i++) {
        Mu__BundleObject *object = m->object_list[i] = &m->objects[i];
        *object = (Mu__BundleObject)MU__BUNDLE_OBJECT__INIT;
        object->has_checkpoint_values = yes;
        object->children = &m->reference_list[m->n_references];
        add_references(t, (int)i, m, object);
        const int model = i == 0 ? mu__path_child(t, 0, "model", strlen("model")) : -1;
        if (model >= 0)
            add_references(t, model, m, object);
        if (t->items[i].key)
            add_attribute(&t->items[i], m, object);
    }
}

static mu_status pack(const mu_path_tree *t, message *m, uint8_t **out, size_t *bytes)
{
    Mu__BundleGraph graph = MU__BUNDLE_GRAPH__INIT;
    Mu__BundleBool yes = MU__BUNDLE_BOOL__INIT;
    yes.value = true;
    fill(t, m, &yes);
    graph.n_nodes = t->n;
    graph.nodes = m->object_list;
    *bytes = mu__bundle_graph__get_packed_size(&graph);
    *out = mu__alloc(*bytes + 1);
    if (!*out)
        return MU_RESOURCE_EXHAUSTED;
    mu__bundle_graph__pack(&graph, *out);
    return MU_OK;
}

static mu_status make(const mu_path_tree *t, uint8_t **out, size_t *bytes)
{
    const size_t n = t->n, edges = 4 * n; // two names for each, and those of "model" again
    size_t names = 0;
    for (size_t i = 0; i < n; i++)
        names += 4 * (t->items[i].length + 2) + (table_end(t->items[i].key) ? strlen(t->items[i].key) + 1 : 0);
    message m = {0};
    m.objects = mu__calloc(n, sizeof *m.objects);
    m.object_list = mu__calloc(n, sizeof *m.object_list);
    m.attributes = mu__calloc(n, sizeof *m.attributes);
    m.attribute_list = mu__calloc(n, sizeof *m.attribute_list);
    m.references = mu__calloc(edges, sizeof *m.references);
    m.reference_list = mu__calloc(edges, sizeof *m.reference_list);
    m.names = mu__calloc(names, 1);
    const bool whole =
        m.objects && m.object_list && m.attributes && m.attribute_list && m.references && m.reference_list && m.names;
    const mu_status status = whole ? pack(t, &m, out, bytes) : MU_RESOURCE_EXHAUSTED;
    mu__free(m.objects);
    mu__free(m.object_list);
    mu__free(m.attributes);
    mu__free(m.attribute_list);
    mu__free(m.references);
    mu__free(m.reference_list);
    mu__free(m.names);
    return status;
}

mu_status mu__bundle_graph(int n, const char *const *keys, uint8_t **out, size_t *bytes)
{
    mu_path_tree t = {0};
    mu_status status = mu__path_add(&t, -1, "", 0);
    for (int i = 0; status == MU_OK && i < n; i++)
        status = add_key(&t, keys[i]);
    if (status == MU_OK)
        status = make(&t, out, bytes);
    mu__free(t.items);
    return status;
}
