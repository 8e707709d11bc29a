// Operations of keras.ops in functional models: reading them, their results, writing them again, and refusals.
// tests/conformance/files.py compares Keras's own models.
#include "model_test.h"

enum { TEXT = 4000 };

#define TENSOR(name)                                                                                        \
    "{\"class_name\": \"__keras_tensor__\", \"config\": {\"shape\": [null, 3, 4], \"dtype\": \"float64\", " \
    "\"keras_history\": [\"" name "\", 0, 0]}}"
#define SLICE(start, stop, step) \
    "{\"class_name\": \"__slice__\", \"config\": {\"start\": " start ", \"stop\": " stop ", \"step\": " step "}}"
#define ELLIPSIS     "{\"class_name\": \"__ellipsis__\", \"config\": {}}"
#define ARRAY(value) "{\"class_name\": \"__numpy__\", \"config\": {\"value\": " value ", \"dtype\": \"float32\"}}"

// A model of one operation: its class, its options, its positional arguments and those by name.
static const char *model_of(const char *class_name, const char *config, const char *args, const char *kwargs)
{
    static char text[TEXT];
    snprintf(text, sizeof text,
             "{\"module\": \"keras.src.models.functional\", \"class_name\": \"Functional\", \"config\": {\"name\": "
             "\"m\", \"trainable\": true, \"layers\": ["
             "{\"module\": \"keras.layers\", \"class_name\": \"InputLayer\", \"config\": {"
             "\"batch_shape\": [null, 3, 4], \"dtype\": \"float64\", \"sparse\": false, \"ragged\": false, \"name\": "
             "\"x\"}, \"registered_name\": null, \"name\": \"x\", \"inbound_nodes\": []}, {\"module\": "
             "\"keras.src.ops.numpy\", \"class_name\": \"%s\", \"config\": {\"name\": \"op\"%s}, \"registered_name\": "
             "\"%s\", \"name\": \"op\", \"inbound_nodes\": [{\"args\": [%s], \"kwargs\": {%s}}]}], \"input_layers\": "
             "[[\"x\", 0, 0]], \"output_layers\": [[\"op\", 0, 0]]}, \"registered_name\": \"Functional\", "
             "\"build_config\": {\"input_shape\": null}}",
             class_name, config, class_name, args, kwargs);
    return text;
}

// The result for [[[0, 1, 2, 3], [4, …], [8, …]], [[12, …], …]].
static mu_tensor *result_of(const char *class_name, const char *config, const char *args)
{
    double values[24];
    for (int i = 0; i < 24; i++)
        values[i] = i;
    mu_model *model = mu_layer_from_config(model_of(class_name, config, args, ""));
    mu_tensor *y = model ? mu_call(model, mu_tensor_new(MU_F64, 3, (int64_t[]){2, 3, 4}, values)) : NULL;
    if (!y)
        fail_msg("%s: %s", class_name, mu_error_message());
    const char *text = mu_layer_config(model);
    mu_model *again = mu_layer_from_config(text);
    if (!again)
        fail_msg("%s: %s", class_name, mu_error_message());
    assert_string_equal(mu_layer_config(again), text);
    assert_non_null(strstr(text, class_name));
    return y;
}

static void assert_result(mu_tensor *y, int rank, const int64_t *dims, int n, const double *wanted)
{
    assert_int_equal(mu_tensor_rank(y), rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(mu_tensor_dim(y, i), dims[i]);
    assert_near(doubles(mu_cast(y, MU_F64)), wanted, n, 1e-12);
}

#define DIMS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }
#define NUMBERS(...) \
    (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]) { __VA_ARGS__ }

static void operators(void **state)
{
    (void)state;
    const double *y = doubles(result_of("Add", "", TENSOR("x") ", 0.5"));
    assert_number(y[23], 23.5, 0);
    assert_number(doubles(result_of("Subtract", "", "1, " TENSOR("x")))[23], -22, 0);
    assert_number(doubles(result_of("Multiply", "", TENSOR("x") ", " TENSOR("x")))[5], 25, 0);
    assert_number(doubles(result_of("Power", "", TENSOR("x") ", 3"))[2], 8, 1e-12);
    assert_number(doubles(result_of("TrueDivide", "", TENSOR("x") ", 4"))[3], .75, 0);
    assert_number(doubles(result_of("Add", "", TENSOR("x") ", " ARRAY("[1, 2, 3, 4]")))[6], 9, 0);
    assert_number(doubles(result_of("Negative", "", TENSOR("x")))[7], -7, 0);
    assert_number(doubles(mu_cast(result_of("Greater", "", TENSOR("x") ", 11"), MU_F64))[12], 1, 0);
}

static void parts(void **state)
{
    (void)state;
    assert_result(result_of("GetItem", "", TENSOR("x") ", [" SLICE("null", "null", "null") ", 0]"), DIMS(2, 4),
                  NUMBERS(0, 1, 2, 3, 12, 13, 14, 15));
    assert_result(result_of("GetItem", "", TENSOR("x") ", [" ELLIPSIS ", -1]"), DIMS(2, 3),
                  NUMBERS(3, 7, 11, 15, 19, 23));
    assert_result(result_of("GetItem", "", TENSOR("x") ", 1"), DIMS(3, 4),
                  NUMBERS(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23));
    assert_result(result_of("GetItem", "",
                            TENSOR("x") ", [" SLICE("null", "null", "null") ", " SLICE(
                                "1", "null", "null") ", null, " SLICE("null", "null", "-2") "]"),
                  DIMS(2, 2, 1, 2), NUMBERS(7, 5, 11, 9, 19, 17, 23, 21));
    mu_tensor *half = result_of("Split", ", \"indices_or_sections\": [1], \"axis\": -1", TENSOR("x"));
    assert_result(half, DIMS(2, 3, 1), NUMBERS(0, 4, 8, 12, 16, 20));
}

static void shapes_and_reductions(void **state)
{
    (void)state;
    assert_result(result_of("Mean", ", \"axis\": 1, \"keepdims\": false", TENSOR("x")), DIMS(2, 4),
                  NUMBERS(4, 5, 6, 7, 16, 17, 18, 19));
    assert_result(result_of("Sum", ", \"axis\": [-1, 1], \"keepdims\": true", TENSOR("x")), DIMS(2, 1, 1),
                  NUMBERS(66, 210));
    assert_result(result_of("Max", ", \"axis\": null, \"keepdims\": false, \"initial\": null", TENSOR("x")), 0, NULL,
                  NUMBERS(23));
    mu_tensor *y = result_of("Reshape", ", \"newshape\": [-1, 2, 6]", TENSOR("x"));
    assert_int_equal(mu_tensor_dim(y, 2), 6);
    y = result_of("Transpose", ", \"axes\": [0, 2, 1]", TENSOR("x"));
    assert_number(doubles(y)[1], 4, 0);
    y = result_of("ExpandDims", ", \"axis\": -1", TENSOR("x"));
    assert_int_equal(mu_tensor_rank(y), 4);
    y = result_of("Concatenate", ", \"axis\": 1", "[" TENSOR("x") ", " TENSOR("x") "]");
    assert_int_equal(mu_tensor_dim(y, 1), 6);
    y = result_of("Cast", ", \"dtype\": \"int32\"", TENSOR("x"));
    assert_int_equal(mu_tensor_dtype(y), MU_I32);
    y = result_of("Where", "", TENSOR("x") ", " TENSOR("x") ", -1.5");
    assert_number(doubles(y)[0], -1.5, 0);
    assert_number(doubles(result_of("Clip", ", \"x_min\": 2, \"x_max\": 5.5", TENSOR("x")))[9], 5.5, 0);
}

// Forms that Python also takes: 1 for True, omitted axes, negative indices in a list or alone.
static void spellings(void **state)
{
    (void)state;
    assert_result(result_of("Sum", ", \"axis\": [-1, 1], \"keepdims\": 1", TENSOR("x")), DIMS(2, 1, 1),
                  NUMBERS(66, 210));
    assert_result(result_of("Sum", ", \"axis\": [-1, 1], \"keepdims\": 0", TENSOR("x")), DIMS(2), NUMBERS(66, 210));
    assert_result(result_of("Argmax", ", \"axis\": 2, \"keepdims\": 1.0", TENSOR("x")), DIMS(2, 3, 1),
                  NUMBERS(3, 3, 3, 3, 3, 3));
    assert_result(result_of("Argmax", ", \"axis\": null, \"keepdims\": true", TENSOR("x")), DIMS(1, 1, 1), NUMBERS(23));
    mu_tensor *y = result_of("Transpose", "", TENSOR("x"));
    assert_int_equal(mu_tensor_dim(y, 0), 4);
    assert_number(doubles(y)[1], 12, 0);
    assert_int_equal(mu_tensor_rank(result_of("Squeeze", "", TENSOR("x"))), 3);
    assert_result(result_of("Take", ", \"axis\": 2", TENSOR("x") ", -1"), DIMS(2, 3), NUMBERS(3, 7, 11, 15, 19, 23));
    assert_result(result_of("Take", ", \"axis\": 1", TENSOR("x") ", [-1]"), DIMS(2, 1, 4),
                  NUMBERS(8, 9, 10, 11, 20, 21, 22, 23));
    assert_result(result_of("Take", ", \"axis\": null", TENSOR("x") ", [5, -2]"), DIMS(2), NUMBERS(5, 22));
    const double *above = doubles(result_of("Clip", ", \"x_min\": 22, \"x_max\": null", TENSOR("x")));
    assert_number(above[0], 22, 0);
    assert_number(above[23], 23, 0);
}

static void refuse_with(const char *class_name, const char *config, const char *args, const char *kwargs,
                        mu_status code, const char *part)
{
    mu_model *model = mu_layer_from_config(model_of(class_name, config, args, kwargs));
    if (model)
        mu_call(model, mu_zeros(MU_F64, 3, (int64_t[]){2, 3, 4}));
    expect_error(code, part);
}

// Arguments that are not numbers where numbers are expected, and surplus operands, must not be ignored silently.
static void refuses_options(void **state)
{
    (void)state;
    const mu_status unknown = MU_UNIMPLEMENTED;
    refuse_with("Clip", ", \"x_min\": \"0\", \"x_max\": 1", TENSOR("x"), "", unknown, "bounds that are not numbers");
    refuse_with("Clip", ", \"x_min\": 0, \"x_max\": [1]", TENSOR("x"), "", unknown, "bounds that are not numbers");
    refuse_with("GetItem", "", TENSOR("x") ", [" SLICE("0.5", "null", "null") "]", "", unknown, "bounds or step");
    refuse_with("GetItem", "", TENSOR("x") ", [" SLICE("null", "\"1\"", "null") "]", "", unknown, "bounds or step");
    refuse_with("GetItem", "", TENSOR("x") ", [" SLICE("null", "null", "2.0") "]", "", unknown, "bounds or step");
    refuse_with("Softmax", ", \"axis\": -1", TENSOR("x") ", " TENSOR("x"), "", unknown, "another number of operands");
    refuse_with("Reshape", ", \"newshape\": [-1]", TENSOR("x") ", 5", "", unknown, "another number of operands");
    refuse_with("Split", ", \"indices_or_sections\": 2, \"axis\": 2", TENSOR("x") ", 5", "", unknown,
                "another number of operands");
    refuse_with("Where", "", TENSOR("x") ", 1", "", unknown, "another number of operands");
    refuse_with("Take", ", \"axis\": 1", TENSOR("x") ", 1, 2.5, 3", "", unknown, "another number of operands");
    refuse_with("Take", ", \"axis\": 1", TENSOR("x") ", [0, 0.5]", "", unknown, "not whole numbers");
    refuse_with("Take", ", \"axis\": 1", TENSOR("x") ", -4", "", MU_INVALID_ARGUMENT, "index -1");
    refuse_with("LeakyRelu", ", \"negative_slope\": \"a\"", TENSOR("x"), "", unknown, "a slope that is not a number");
    refuse_with("Split", ", \"indices_or_sections\": [1, 1.5], \"axis\": 2", TENSOR("x"), "", unknown,
                "not whole numbers");
    refuse_with("Split", ", \"indices_or_sections\": null, \"axis\": 2", TENSOR("x"), "", unknown, "neither a number");
    refuse_with("OneHot", ", \"num_classes\": null, \"axis\": -1", TENSOR("x"), "", unknown, "number of classes");
    refuse_with("GetItem", "", TENSOR("x"), "", unknown, "has no key");
    refuse_with("Tile", ", \"repeats\": [1, 1, 1, 2]", TENSOR("x"), "", unknown, "more repeats than axes");
}

static void refuses(void **state)
{
    (void)state;
    refuse_with("Sort", ", \"axis\": -1", TENSOR("x"), "", MU_UNIMPLEMENTED, "'op' is the operation Sort of keras.ops");
    refuse_with("Elu", ", \"alpha\": 0.5", TENSOR("x"), "", MU_UNIMPLEMENTED, "'op' (Elu) has the option 'alpha'");
    refuse_with("Prod", ", \"axis\": 1, \"dtype\": \"int8\"", TENSOR("x"), "", MU_UNIMPLEMENTED,
                "has the option 'dtype'");
    refuse_with("Add", "", TENSOR("x"), "", MU_UNIMPLEMENTED, "'op' (Add) has another number of operands");
    refuse_with("Add", "", TENSOR("x") ", \"a\"", "", MU_UNIMPLEMENTED, "neither a tensor nor a number");
    refuse_with("Add", "", TENSOR("x") ", " ARRAY("[[1, 2], [3]]"), "", MU_INVALID_ARGUMENT,
                "one length along each axis");
    refuse_with("Add", "", TENSOR("x") ", " ARRAY("[]"), "", MU_UNIMPLEMENTED, "constants of 1 to");
    refuse_with("Add", "", TENSOR("x"), "\"x2\": 1", MU_UNIMPLEMENTED, "is called with 'x2' by name");
    refuse_with("Mean", ", \"axis\": 3", TENSOR("x"), "", MU_INVALID_ARGUMENT, "an axis that a tensor of rank 3");
    refuse_with("GetItem", "", TENSOR("x") ", [" ELLIPSIS ", " ELLIPSIS "]", "", MU_UNIMPLEMENTED, "more parts than");
    refuse_with("GetItem", "", TENSOR("x") ", [0, 0, 0, 0]", "", MU_UNIMPLEMENTED, "than its input has axes");
    refuse_with("GetItem", "", TENSOR("x") ", [" TENSOR("x") "]", "", MU_UNIMPLEMENTED, "whole numbers and slices");
    refuse_with("Split", ", \"indices_or_sections\": -1, \"axis\": 1", TENSOR("x"), "", MU_UNIMPLEMENTED,
                "too many parts");
}

// A program may call the layer of an operation itself.
static void refuses_other_tensors(void **state)
{
    (void)state;
    mu_model *model = mu_layer_from_config(model_of("Add", "", TENSOR("x") ", " TENSOR("x"), ""));
    mu_layer *add = model ? mu_model_layer(model, "op") : NULL;
    if (!add)
        fail_msg("%s", mu_error_message());
    mu_tensor *x = mu_ones(MU_F64, 1, (int64_t[]){2});
    mu_variable *v = mu_variable_new(x, "v");
    assert_null(mu_call(add, .inputs = mu_list_of(0, NULL)));
    expect_error(MU_INVALID_ARGUMENT, "'op' (Add) is called on 0 tensors; expected 2");
    assert_null(mu_call(add, .inputs = mu_list(x, x, x, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "'op' (Add) is called on 3 tensors; expected 2");
    assert_null(mu_call(add, .inputs = mu_variables(v, v, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "is called on an object of type variable as input 0; expected a tensor");
    assert_number(doubles(mu_call(add, .inputs = mu_list(x, x, MU_END)))[1], 2, 0);
}

// An unreadable constant after as many operands as the operation may have.
static void refuses_operand_after_the_last(void **state)
{
    (void)state;
    char args[TEXT / 2] = TENSOR("x");
    for (int i = 1; i < MU_MAX_MODEL_INPUTS; i++)
        strcat(args, ", 1");
    strcat(args, ", " ARRAY("[]"));
    refuse_with("Concatenate", ", \"axis\": 1", args, "", MU_UNIMPLEMENTED, "constants of 1 to");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(operators),
        MODEL_TEST(parts),
        MODEL_TEST(shapes_and_reductions),
        MODEL_TEST(spellings),
        MODEL_TEST(refuses_options),
        MODEL_TEST(refuses),
        MODEL_TEST(refuses_other_tensors),
        MODEL_TEST(refuses_operand_after_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
