// Muster: training on many devices and many machines, from C. The one header that a program includes. The headers below
// are in reading order; base.h has the conventions that hold for all of them.
#ifndef MUSTER_H
#define MUSTER_H

#include <muster/base.h>
#include <muster/cancellation.h>
#include <muster/tensor.h>
#include <muster/dlpack.h>
#include <muster/ops.h>
#include <muster/nn.h>
#include <muster/custom.h>
#include <muster/accumulator.h>
#include <muster/graph.h>
#include <muster/random.h>
#include <muster/control.h>
#include <muster/engine.h>
#include <muster/comm.h>
#include <muster/cluster.h>
#include <muster/rpc.h>
#include <muster/server.h>
#include <muster/tpu.h>
#include <muster/tpu_strategy.h>
#include <muster/data.h>
#include <muster/example.h>
#include <muster/image.h>
#include <muster/io.h>
#include <muster/distribute.h>
#include <muster/sharding.h>
#include <muster/parameter_server.h>
#include <muster/embedding_table.h>
#include <muster/coordinator.h>
#include <muster/weight.h>
#include <muster/layer.h>
#include <muster/recurrent.h>
#include <muster/attention.h>
#include <muster/spatial.h>
#include <muster/preprocessing.h>
#include <muster/text.h>
#include <muster/loss.h>
#include <muster/optimizer.h>
#include <muster/model.h>
#include <muster/callback.h>
#include <muster/checkpoint.h>
#include <muster/saved_model.h>
#include <muster/plot.h>
#include <muster/summary.h>

// Last: macros of the names declared above.
#include <muster/lines.h>

#endif
