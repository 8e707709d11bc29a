# Tests of tests/unit and tests/tables again, on the plugin's devices. Each of them is in one of these lists, by name or
# by folder: lint/tests_on_devices names one that is in none, or in two.
#
# run_again(TESTS…): with the plugin's devices in the place of the CPU devices. With DEVICE, eager ops and what names no
# strategy run on that device. XLA compiles for many seconds in the SLOW ones, which therefore run with
# `ctest -C xla-tables` alone (`scripts/check_long xla-tables`).
# leave_out(TEST reason CASES…), in front of it: cases that cannot run there.
# not_again(reason TESTS…): tests that do not run there.
function(run_again)
  cmake_parse_arguments(PARSE_ARGV 0 run "SLOW" "DEVICE" "TESTS")
  foreach(test ${run_TESTS})
    string(REPLACE / _ target ${test})
    set(only)
    set(labels pjrt)
    set(environment)
    if(run_SLOW)
      set(only CONFIGURATIONS xla-tables)
      list(APPEND labels xla-tables)
    endif()
    if(run_DEVICE)
      list(APPEND environment MU_TEST_DEVICE=${run_DEVICE})
    endif()
    if(without_${test})
      list(APPEND environment "MU_TEST_WITHOUT=${without_${test}}")
    endif()
    add_test(NAME pjrt/${test} ${only}
      COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/with_plugin ${plugin} $<TARGET_FILE:${target}>)
    set_tests_properties(pjrt/${test} PROPERTIES LABELS "${labels}" TIMEOUT 1200 SKIP_RETURN_CODE 77
      FIXTURES_REQUIRED pjrt_plugin)
    if(environment)
      set_tests_properties(pjrt/${test} PROPERTIES ENVIRONMENT "${environment}")
      target_sources(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/on_device.c)
      target_link_options(${target} PRIVATE -Wl,--wrap=mu_init_with,--wrap=_cmocka_run_group_tests)
    endif()
    list(APPEND again pjrt/${test})
  endforeach()
  set(again ${again} PARENT_SCOPE)
endfunction()

function(leave_out test reason)
  list(JOIN ARGN " " cases)
  set(without_${test} "${without_${test}} ${cases}" PARENT_SCOPE)
endfunction()

function(not_again reason)
endfunction()

# ---- Strategies ------------------------------------------------------------------------------------------------------

leave_out(distribute/test_accumulator "gradients accumulate in the host's memory, so traced takes are refused"
  test_traced test_traced_sparse test_traces_refuse test_cancelled_takes)
leave_out(distribute/test_announce "names CPU devices" strategies_name_devices_and_communication)
leave_out(distribute/test_central "the default there is all devices of the plugin" devices_and_defaults
  one_replica_has_plain_variables)
leave_out(distribute/test_sharded_variable "dynamic_partition, whose results' sizes depend on elements"
  test_gathers test_training test_checkpoints)
leave_out(distribute/test_uneven "a constant index that is wrong fails before the run, so no variable is in doubt"
  overwriting_ends_the_doubt)
run_again(TESTS distribute/test_accumulator distribute/test_announce distribute/test_in_force distribute/test_merge
  distribute/test_own_strategy distribute/test_parts distribute/test_reduce distribute/test_run
  distribute/test_scatter_permute distribute/test_scopes distribute/test_sharded_variable distribute/test_uneven
  distribute/test_variables distribute/test_variants distribute/test_ways)
run_again(SLOW TESTS distribute/test_central distribute/test_tpu distribute/test_worker_shapes)
not_again("formulas over sizes, without tensors" distribute/test_partitioner)
not_again("its strategies and workers compute on CPU devices" distribute/test_random_steps)
not_again("workers and servers compute on CPU devices" coordinator/* rpc/* distribute/test_function_service
  distribute/test_parameter_server)

# ---- Functions -------------------------------------------------------------------------------------------------------

set(unknown_shapes "device programs have constant shapes, and these depend on elements or on how often a loop repeats")
leave_out(graph/test_control "${unknown_shapes}" shapes_may_change)
leave_out(graph/test_control_state "${unknown_shapes}" gradients_are_those_of_the_eager_ops
  gradients_are_those_of_tensorflow)
leave_out(graph/test_control_uses "${unknown_shapes}" plans_break_where_elements_decide)
leave_out(graph/test_branch_shapes "${unknown_shapes}" a_taken_branch_that_does_not_fit_is_an_error)
leave_out(graph/test_custom "a program's own op is a C function" gradients_are_right_on_every_replica)
leave_out(graph/test_explain "device programs cannot print" attributes_are_shown)
run_again(TESTS graph/test_branch_shapes graph/test_control graph/test_control_state graph/test_control_uses
  graph/test_custom graph/test_explain graph/test_generator graph/test_gradient graph/test_jacobian graph/test_lines
  graph/test_lines_bodies graph/test_parts graph/test_trace graph/test_variable_storage graph/test_vectorize)
run_again(SLOW TESTS graph/test_function graph/test_unknown_sizes)
run_again(DEVICE XLA_CPU:0 TESTS graph/test_slices)
not_again("${unknown_shapes}" graph/test_control_grad graph/test_random_bodies)
not_again("compares bits with those of the native engine" graph/test_pass_state)
not_again("pjrt/test_random_programs runs its programs" graph/test_random_programs)
not_again("passes over graphs and their written form, which every engine gets" graph/test_pass graph/test_reductions
  graph/test_wire)
not_again("lets each allocation fail in turn, and so compiles hundreds of programs; pjrt/test_plugin does it for one"
  graph/test_function_memory)

# ---- Models ----------------------------------------------------------------------------------------------------------

leave_out(model/test_fit "a failed batch leaves the weights in doubt here (decision 116)" a_bad_batch_is_survived)
leave_out(model/test_summary "device programs cannot record" traced_functions_record_in_each_run
  the_first_replica_of_a_graph_records)
run_again(TESTS model/test_calls model/test_functional model/test_layer_classes model/test_layers model/test_masks
  model/test_metric model/test_model_parts model/test_operations model/test_optimizer model/test_own_classes
  model/test_preemption model/test_preprocessing model/test_sparse model/test_subclassed model/test_summary
  model/test_text)
run_again(SLOW TESTS model/test_attention model/test_buckets model/test_callback_classes model/test_callbacks
  model/test_checkpoint model/test_classes model/test_fit model/test_look_up_models model/test_model_arguments
  model/test_model_memory model/test_objects model/test_optimizer_classes model/test_outputs model/test_plot
  model/test_precision model/test_recurrent model/test_saved_model model/test_weights)
not_again("progress bars, without tensors" model/test_progress)

# ---- Ops, one by one -------------------------------------------------------------------------------------------------

leave_out(ops/test_op "results on a device share no memory with operands" test_views_share_the_buffer)
leave_out(ops/test_op "programs of single ops are kept, and so are their objects" test_every_allocation_may_fail)
leave_out(ops/test_linalg "a thousand programs, for sizes around the native kernels' blocks" test_systems)
run_again(DEVICE XLA_CPU:0 TESTS ops/test_nn_compose ops/test_op ops/test_refusals)
run_again(SLOW DEVICE XLA_CPU:0 TESTS ops/test_linalg ops/test_moves ops/test_op_random ops/test_op_values)
not_again("runs the native engine's kernels by hand, or counts its threads" ops/test_apply ops/test_collective
  ops/test_conv ops/test_conv_writes ops/test_float16_products ops/test_matmul ops/test_nn ops/test_norm
  ops/test_onednn_team ops/test_pool)
not_again("is about the host's memory: what shares it, how much there is" ops/test_budget ops/test_large ops/test_views)
not_again("has denormal numbers, which XLA takes for 0" ops/test_float16 ops/test_sort)
not_again("replaces dlopen, which opens plugins too" ops/test_no_lapack)

# ---- Tables ----------------------------------------------------------------------------------------------------------

leave_out(tables/test_composed_segments "sorted segments: their number depends on elements" test_rows)
leave_out(tables/test_composed_linalg "StableHLO has no singular values" test_rows test_singular_values
  test_largest_singular_values test_largest_of_all_values test_equal_largest_values test_largest_value_at_ends)
run_again(TESTS tables/test_errors tables/test_exit tables/test_queries)
run_again(SLOW TESTS tables/test_null)
run_again(SLOW DEVICE XLA_CPU:0 TESTS tables/test_composed_basics tables/test_composed_linalg
  tables/test_composed_segments tables/test_composed_spatial)
not_again("pjrt/test_ops, test_gradients and test_strategies run these tables; scripts/check_long runs all of them"
  tables/test_gradients tables/test_ops tables/test_strategies)
not_again("transports between threads and processes, in the host's memory" tables/test_collectives)
not_again("wrong numbers, which are refused before a device is asked" tables/test_hostile)
not_again("clears the environment, which names the plugin" tables/test_mistakes)

# ---- Folders ---------------------------------------------------------------------------------------------------------

not_again("needs no device: what tensors, files, processes and their messages are made of" base/* cluster/* comm/* io/*
  tensor/*)
not_again("the native engine, its kernels and plans; engines and stages in its place" engine/* kernels/*)
not_again("pipelines of datasets compute on the host, as in TensorFlow" data/*)
