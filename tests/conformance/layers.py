# Layers of Keras and of Muster with their arguments given: what they compute, their weights, and their JSON both ways.
# (defaults.py compares the same layers with their arguments left out.)
#
# Both get the same input and weights. Then Keras reads Muster's JSON, and Muster reads Keras's; each must compute the same
# as before. Last, every class of the installed Keras's `keras.layers` is either there or in NOT_THERE, with the reason.
# It must not leave out an argument that both sides have.
import contextlib
import ctypes
import inspect
import json
import sys

import keras
import numpy as np
import tensorflow as tf

import muster
from defaults import F32_ONLY, FLOATX, TOLERANCE, named, off, random_model, set_floatx
from report import Report

CONV = {"kernel_initializer": "he_normal", "bias_initializer": "random_normal"}
AFFINE = {"beta_initializer": "random_normal", "gamma_initializer": "random_uniform"}
LINE, IMAGE, VOLUME, COLOURS = (9, 4), (9, 8, 4), (6, 5, 7, 4), (9, 8, 3)

# Keras's class, Muster's function, Keras's arguments, those of Muster that are written differently, the shape of a sample.
# An argument of Keras that is None here is one that Muster writes differently.
LAYERS = [
    ("Conv1D", "mu_conv1d", {"filters": 6, "kernel_size": 3, "strides": 2, "padding": "same", "groups": 2,
                             "activation": "tanh", **CONV}, {}, LINE),
    ("Conv1D", "mu_conv1d", {"filters": 6, "kernel_size": 3, "padding": "causal", "dilation_rate": 2,
                             "use_bias": False}, {"no_bias": True}, LINE),
    ("Conv2D", "mu_conv2d", {"filters": 6, "kernel_size": (3, 2), "strides": (2, 1), "padding": "same", "groups": 2,
                             "activation": "relu", **CONV},
     {"kernel_size_per_axis": [3, 2, 0], "strides_per_axis": [2, 1, 0]}, IMAGE),
    ("Conv2D", "mu_conv2d", {"filters": 6, "kernel_size": 3, "dilation_rate": (1, 2)},
     {"dilation_rate_per_axis": [1, 2, 0]}, IMAGE),
    ("Conv3D", "mu_conv3d", {"filters": 6, "kernel_size": (3, 2, 1), "strides": (1, 2, 3), "padding": "same",
                             "activation": "relu", **CONV},
     {"kernel_size_per_axis": [3, 2, 1], "strides_per_axis": [1, 2, 3]}, VOLUME),
    ("Conv3D", "mu_conv3d", {"filters": 6, "kernel_size": 2, "dilation_rate": 2, "use_bias": False},
     {"no_bias": True}, VOLUME),
    ("Conv1DTranspose", "mu_conv1d_transpose", {"filters": 6, "kernel_size": 4, "strides": 3, "padding": "same",
                                                "output_padding": 2, "activation": "tanh", **CONV}, {}, LINE),
    ("Conv1DTranspose", "mu_conv1d_transpose", {"filters": 6, "kernel_size": 2, "strides": 3}, {}, LINE),
    ("Conv1DTranspose", "mu_conv1d_transpose", {"filters": 6, "kernel_size": 4, "strides": 3, "output_padding": 1}, {},
     LINE),
    ("Conv2DTranspose", "mu_conv2d_transpose", {"filters": 6, "kernel_size": (3, 2), "strides": (2, 3),
                                                "padding": "same", "use_bias": False},
     {"kernel_size_per_axis": [3, 2, 0], "strides_per_axis": [2, 3, 0], "no_bias": True}, IMAGE),
    ("Conv2DTranspose", "mu_conv2d_transpose", {"filters": 6, "kernel_size": 3, "strides": 2, "padding": "same",
                                                "output_padding": (1, 0)}, {"output_padding_per_axis": [1, 0, 0]}, IMAGE),
    ("Conv3DTranspose", "mu_conv3d_transpose", {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same",
                                                "activation": "relu", **CONV}, {}, VOLUME),
    ("Conv3DTranspose", "mu_conv3d_transpose", {"filters": 3, "kernel_size": (3, 2, 1), "strides": (1, 2, 2)},
     {"kernel_size_per_axis": [3, 2, 1], "strides_per_axis": [1, 2, 2]}, VOLUME),
    ("DepthwiseConv1D", "mu_depthwise_conv1d", {"kernel_size": 3, "strides": 2, "padding": "same", "depth_multiplier": 2,
                                                "activation": "tanh", "depthwise_initializer": "he_normal",
                                                "bias_initializer": "random_normal"}, {}, LINE),
    ("DepthwiseConv1D", "mu_depthwise_conv1d", {"kernel_size": 3, "dilation_rate": 2, "use_bias": False},
     {"no_bias": True}, LINE),
    ("DepthwiseConv2D", "mu_depthwise_conv2d", {"kernel_size": (3, 2), "strides": 2, "padding": "same",
                                                "depth_multiplier": 2, "activation": "tanh"},
     {"kernel_size_per_axis": [3, 2, 0]}, IMAGE),
    ("SeparableConv1D", "mu_separable_conv1d", {"filters": 5, "kernel_size": 3, "strides": 2, "padding": "same",
                                                "depth_multiplier": 2, "activation": "tanh",
                                                "depthwise_initializer": "he_normal",
                                                "pointwise_initializer": "he_uniform",
                                                "bias_initializer": "random_normal"}, {}, LINE),
    ("SeparableConv2D", "mu_separable_conv2d", {"filters": 5, "kernel_size": (3, 2), "dilation_rate": 2,
                                                "depth_multiplier": 2, "use_bias": False},
     {"kernel_size_per_axis": [3, 2, 0], "no_bias": True}, IMAGE),
    ("MaxPooling1D", "mu_max_pool1d", {"pool_size": 3, "strides": 2, "padding": "same"}, {}, LINE),
    ("MaxPooling2D", "mu_max_pool2d", {"pool_size": (3, 2), "strides": (1, 2), "padding": "same"},
     {"pool_size_per_axis": [3, 2, 0], "strides_per_axis": [1, 2, 0]}, IMAGE),
    ("MaxPooling3D", "mu_max_pool3d", {"pool_size": (3, 2, 1), "strides": 2, "padding": "same"},
     {"pool_size_per_axis": [3, 2, 1]}, VOLUME),
    ("AveragePooling1D", "mu_average_pool1d", {"pool_size": 3, "strides": 2, "padding": "same"}, {}, LINE),
    ("AveragePooling2D", "mu_average_pool2d", {"pool_size": (3, 2), "strides": (1, 2), "padding": "same"},
     {"pool_size_per_axis": [3, 2, 0], "strides_per_axis": [1, 2, 0]}, IMAGE),
    ("AveragePooling3D", "mu_average_pool3d", {"pool_size": (3, 2, 1), "strides": 2, "padding": "same"},
     {"pool_size_per_axis": [3, 2, 1]}, VOLUME),
    *((f"Global{kind}Pooling{n}D", f"mu_global_{name}_pool{n}d", {"keepdims": True}, {}, shape)
      for kind, name in (("Max", "max"), ("Average", "average")) for n, shape in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"Adaptive{kind}Pooling{n}D", f"mu_adaptive_{name}_pool{n}d", {"output_size": size}, {}, shape)
      for kind, name in (("Max", "max"), ("Average", "average"))
      for n, size, shape in ((1, 4, LINE), (1, 3, LINE), (2, 4, IMAGE), (3, 2, VOLUME))),
    ("AdaptiveAveragePooling2D", "mu_adaptive_average_pool2d", {"output_size": (2, 5)},
     {"output_size_per_axis": [2, 5, 0]}, IMAGE),
    ("UpSampling1D", "mu_up_sampling1d", {"size": 3}, {"size": None, "factor": 3}, LINE),
    ("UpSampling2D", "mu_up_sampling2d", {"size": (3, 2), "interpolation": "nearest"},
     {"size": None, "factor_per_axis": [3, 2, 0]}, IMAGE),
    ("UpSampling2D", "mu_up_sampling2d", {"size": (3, 2), "interpolation": "bilinear"},
     {"size": None, "factor_per_axis": [3, 2, 0]}, IMAGE),
    ("UpSampling3D", "mu_up_sampling3d", {"size": (1, 2, 3)}, {"size": None, "factor_per_axis": [1, 2, 3]}, VOLUME),
    ("ZeroPadding1D", "mu_zero_padding1d", {"padding": (2, 0)}, {"padding_per_side": [2, 0, 0, 0, 0, 0]}, LINE),
    ("ZeroPadding2D", "mu_zero_padding2d", {"padding": ((1, 2), (0, 3))}, {"padding_per_side": [1, 2, 0, 3, 0, 0]}, IMAGE),
    ("ZeroPadding3D", "mu_zero_padding3d", {"padding": ((1, 2), (0, 3), (1, 1))}, {"padding_per_side": [1, 2, 0, 3, 1, 1]},
     VOLUME),
    ("Cropping1D", "mu_cropping1d", {"cropping": (2, 0)}, {"cropping_per_side": [2, 0, 0, 0, 0, 0]}, LINE),
    ("Cropping2D", "mu_cropping2d", {"cropping": ((1, 2), (0, 3))}, {"cropping_per_side": [1, 2, 0, 3, 0, 0]}, IMAGE),
    ("Cropping3D", "mu_cropping3d", {"cropping": ((1, 2), (0, 3), (1, 1))}, {"cropping_per_side": [1, 2, 0, 3, 1, 1]},
     VOLUME),
    ("ReLU", "mu_relu_layer", {"max_value": 1.5, "negative_slope": 0.25, "threshold": 0.5}, {}, LINE),
    ("ReLU", "mu_relu_layer", {"max_value": 0.0}, {}, LINE),
    ("ReLU", "mu_relu_layer", {"negative_slope": 0.25}, {}, LINE),
    ("PReLU", "mu_prelu", {"alpha_initializer": "random_normal", "shared_axes": [1, 2]},
     {"shared_axes": [1, 2, 0, 0, 0, 0, 0]}, IMAGE),
    ("LeakyReLU", "mu_leaky_relu", {"negative_slope": 0.125}, {}, LINE),
    ("ELU", "mu_elu", {"alpha": 0.5}, {}, LINE),
    ("Softmax", "mu_softmax", {"axis": 1}, {}, LINE),
    ("UnitNormalization", "mu_unit_normalization", {"axis": 1}, {}, LINE),
    ("BatchNormalization", "mu_batch_normalization", {"momentum": 0.5, "epsilon": 0.125, "scale": False, **AFFINE,
                                                      "moving_mean_initializer": "ones",
                                                      "moving_variance_initializer": "random_uniform"},
     {"no_scale": True}, LINE),
    ("LayerNormalization", "mu_layer_normalization", {"epsilon": 0.125, "center": False, **AFFINE},
     {"no_center": True}, LINE),
    ("GroupNormalization", "mu_group_normalization", {"groups": 2, "epsilon": 0.125, **AFFINE}, {}, LINE),
    ("GroupNormalization", "mu_group_normalization", {"groups": -1, **AFFINE}, {}, IMAGE),
    ("RMSNormalization", "mu_rms_normalization", {"epsilon": 0.125}, {}, LINE),
    ("BatchNormalization", "mu_batch_normalization", {"axis": 1, "moving_mean_initializer": "random_normal", **AFFINE}, {}, IMAGE),
    *(("LayerNormalization", "mu_layer_normalization", {"axis": axes, "scale": scale, **AFFINE},
       {"axis": None, "axes": axes, "n_axes": len(axes), "no_scale": not scale}, IMAGE)
      for axes, scale in (([1, 2], True), ([1], True), ([1, 2, 3], True), ([1, 3], False))),
    ("LayerNormalization", "mu_layer_normalization", {"axis": [-3, -2]}, {"axis": None, "axes": [-3, -2], "n_axes": 2}, VOLUME),
    *(("RMSNormalization", "mu_rms_normalization", {"axis": axes}, {"axis": None, "axes": axes, "n_axes": len(axes)}, IMAGE)
      for axes in ([2, 3], [1, 2, 3])),
    *(("GroupNormalization", "mu_group_normalization", {"groups": groups, "axis": 1, **AFFINE}, {}, IMAGE) for groups in (3, -1)),
    *((name, f"mu_{ours}", {"rate": 0.25, "seed": 3}, {}, shape)
      for name, ours, shape in (("Dropout", "dropout", LINE), ("AlphaDropout", "alpha_dropout", LINE),
                                ("GaussianDropout", "gaussian_dropout", LINE),
                                ("SpatialDropout1D", "spatial_dropout1d", LINE),
                                ("SpatialDropout2D", "spatial_dropout2d", IMAGE),
                                ("SpatialDropout3D", "spatial_dropout3d", VOLUME))),
    *((name, f"mu_{ours}", {"rate": 0.25, "noise_shape": (None, 1, None), "seed": 3}, {"noise_shape": [-1, 1, -1, 0, 0, 0, 0]}, LINE)
      for name, ours in (("Dropout", "dropout"), ("AlphaDropout", "alpha_dropout"))),
    ("GaussianNoise", "mu_gaussian_noise", {"stddev": 0.25, "seed": 3}, {}, LINE),
    ("EinsumDense", "mu_einsum_dense", {"equation": "abc,cde->abde", "output_shape": (None, 2, 3), "bias_axes": "de",
                                        "activation": "tanh", **CONV}, {"output_shape": [-1, 2, 3, 0, 0, 0, 0]}, LINE),
    ("EinsumDense", "mu_einsum_dense", {"equation": "...x,xy->...y", "output_shape": 5, "bias_axes": "y"},
     {"output_shape": [5, 0, 0, 0, 0, 0, 0]}, IMAGE),
    ("EinsumDense", "mu_einsum_dense", {"equation": "ab...,bc->ac...", "output_shape": 5, "bias_axes": "c"},
     {"output_shape": [5, 0, 0, 0, 0, 0, 0]}, LINE),
    ("EinsumDense", "mu_einsum_dense", {"equation": "abc,bcd->abd", "output_shape": (9, 5)},
     {"output_shape": [9, 5, 0, 0, 0, 0, 0]}, LINE),
]
BOUNDARIES = (ctypes.c_double * 3)(-1.0, 0.5, 3.0)
# Layers that prepare data; the last column: whole numbers below.
LAYERS += [
    ("Rescaling", "mu_rescaling", {"scale": 0.25, "offset": -1.5}, {}, LINE, 0),
    ("Rescaling", "mu_rescaling", {"scale": [0.25, 2, -1, 0.5], "offset": [1, 0, -2, 3]},
     {"scale": None, "scales": (ctypes.c_double * 4)(0.25, 2, -1, 0.5), "offset": None, "offsets": (ctypes.c_double * 4)(1, 0, -2, 3)}, IMAGE, 0),
    ("Normalization", "mu_normalization", {"invert": True}, {}, LINE, 0),
    ("Normalization", "mu_normalization", {}, {}, LINE, 0),
    ("Normalization", "mu_normalization", {"axis": None}, {"axis": None, "whole": True}, LINE, 0),
    *(("Normalization", "mu_normalization", {"axis": axes}, {"axis": None, "axes": axes, "n_axes": len(axes)}, IMAGE, 0)
      for axes in ((1,), (-1, 1), (1, 2, 3))),
    ("Normalization", "mu_normalization", {"axis": None, "mean": 0.5, "variance": 2.0},
     {"axis": None, "whole": True, "mean": (ctypes.c_double * 1)(0.5), "n_mean": 1, "variance": (ctypes.c_double * 1)(2.0),
      "n_variance": 1}, LINE, 0),
    *(("Normalization", "mu_normalization", {"mean": mean, "variance": variance, "invert": invert},
       {"mean": (ctypes.c_double * n)(*np.atleast_1d(mean)), "n_mean": n,
        "variance": (ctypes.c_double * n)(*np.atleast_1d(variance)), "n_variance": n}, LINE, 0)
      for mean, variance, n, invert in ((0.5, 2.0, 1, False), ([0.5, -1.0, 2.0, 3.0], [1.0, 0.25, 4.0, 0.0], 4, False),
                                        ([0.5, -1.0, 2.0, 3.0], [1.0, 0.25, 4.0, 2.0], 4, True))),
    ("CategoryEncoding", "mu_category_encoding", {"num_tokens": 5, "output_mode": "multi_hot"}, {}, (3,), 5),
    ("CategoryEncoding", "mu_category_encoding", {"num_tokens": 5, "output_mode": "count"}, {}, (3,), 5),
    ("CategoryEncoding", "mu_category_encoding", {"num_tokens": 5, "output_mode": "one_hot"}, {}, (3,), 5),
    ("CategoryEncoding", "mu_category_encoding", {"num_tokens": 5, "output_mode": "one_hot"}, {}, (1,), 5),
    *(("Discretization", "mu_discretization", {"bin_boundaries": [-1.0, 0.5, 3.0], "output_mode": mode},
       {"bin_boundaries": BOUNDARIES, "n_bin_boundaries": 3}, (3,), 0) for mode in ("int", "one_hot", "multi_hot", "count")),
    ("Resizing", "mu_resizing", {"height": 5, "width": 11}, {}, IMAGE, 0),
    *(("Resizing", "mu_resizing", {"height": 5, "width": 23, "interpolation": method, "antialias": antialias}, {}, IMAGE, 0)
      for method in ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area") for antialias in (False, True)),
    *(("Resizing", "mu_resizing", {"height": height, "width": width, "pad_to_aspect_ratio": True, "fill_value": value}, {}, IMAGE, 0)
      for height, width, value in ((5, 4, 0.5), (4, 19, -1.0), (9, 9, 0.0))),
    ("Resizing", "mu_resizing", {"height": 4, "width": 12, "interpolation": "nearest", "crop_to_aspect_ratio": True},
     {}, IMAGE, 0),
    ("CenterCrop", "mu_center_crop", {"height": 4, "width": 5}, {}, IMAGE, 0),
    ("CenterCrop", "mu_center_crop", {"height": 12, "width": 5}, {}, IMAGE, 0),
    ("RandomFlip", "mu_random_flip", {"mode": "vertical", "seed": 3}, {}, IMAGE, 0),
    ("RandomBrightness", "mu_random_brightness", {"factor": (0.25, 0.25), "value_range": (-4, 4), "seed": 3}, {}, IMAGE, 0),
    ("RandomContrast", "mu_random_contrast", {"factor": (0.25, 0.5), "value_range": (-1, 1), "seed": 3}, {}, IMAGE, 0),
    *(("RandomRotation", "mu_random_rotation", {"factor": (0.2, 0.2), "fill_mode": mode, "interpolation": interpolation,
                                                "fill_value": 0.5, "seed": 3}, {}, IMAGE, 0)
      for mode, interpolation in (("reflect", "bilinear"), ("constant", "nearest"), ("wrap", "bilinear"), ("nearest", "nearest"))),
    ("RandomZoom", "mu_random_zoom", {"height_factor": (0.3, 0.3), "fill_mode": "nearest", "seed": 3}, {}, IMAGE, 0),
    ("RandomZoom", "mu_random_zoom", {"height_factor": (-0.4, -0.4), "width_factor": (0.3, 0.3), "seed": 3}, {}, IMAGE, 0),
    ("RandomTranslation", "mu_random_translation", {"height_factor": (0.3, 0.3), "width_factor": (-0.4, -0.4),
                                                    "fill_mode": "wrap", "seed": 3}, {}, IMAGE, 0),
    ("RandomTranslation", "mu_random_translation", {"height_factor": (-0.25, -0.25), "width_factor": (0.2, 0.2),
                                                    "fill_mode": "constant", "fill_value": 0.5, "interpolation": "nearest",
                                                    "seed": 3}, {}, IMAGE, 0),
    ("RandomShear", "mu_random_shear", {"x_factor": (0.0, 0.0), "y_factor": (0.0, 0.0), "fill_mode": "wrap", "seed": 3}, {},
     IMAGE, 0),
    ("RandomGrayscale", "mu_random_grayscale", {"factor": 1.0, "seed": 3}, {}, (9, 8, 3), 0),
    ("RandomGrayscale", "mu_random_grayscale", {"factor": 1.0}, {}, (9, 8, 1), 0),
    ("RandomColorDegeneration", "mu_random_color_degeneration", {"factor": (0.75, 0.75), "value_range": (-2, 3), "seed": 3},
     {}, (9, 8, 3), 0),
    ("RandomInvert", "mu_random_invert", {"factor": (1.0, 1.0), "value_range": (-2, 3), "seed": 3}, {}, IMAGE, 0),
    ("Solarization", "mu_solarization", {"value_range": (-2, 3), "seed": 3}, {}, IMAGE, 0),
    ("AutoContrast", "mu_auto_contrast", {"value_range": (-2, 3)}, {}, IMAGE, 0),
    ("AutoContrast", "mu_auto_contrast", {}, {}, IMAGE, 0),
    ("RandomHue", "mu_random_hue", {"factor": (1.0, 1.0), "value_range": (-8, 8), "seed": 3}, {}, COLOURS, 0),
    ("RandomSaturation", "mu_random_saturation", {"factor": (0.25, 0.25), "value_range": (0, 1), "seed": 3}, {}, COLOURS, 0),
    ("RandomColorJitter", "mu_random_color_jitter", {"value_range": (-8, 8), "brightness_factor": (0.125, 0.125), "seed": 3},
     {}, IMAGE, 0),
    ("RandomColorJitter", "mu_random_color_jitter",
     {"value_range": (-8, 8), "brightness_factor": (0.125, 0.125), "contrast_factor": (0.25, 0.5), "seed": 3,
      "saturation_factor": (0.25, 0.25), "hue_factor": (1.0, 1.0)}, {}, COLOURS, 0),
    ("RandomPosterization", "mu_random_posterization", {"factor": (3, 3), "value_range": (-8, 8), "seed": 3}, {}, IMAGE, 0),
    ("RandomSharpness", "mu_random_sharpness", {"factor": (0.75, 0.75), "value_range": (-2, 3), "seed": 3}, {}, IMAGE, 0),
    ("RandomGaussianBlur", "mu_random_gaussian_blur", {"factor": (1.0, 1.0), "sigma": (0.75, 0.75), "kernel_size": 5, "seed": 3,
                                                       "value_range": (-2, 3)}, {}, IMAGE, 0),
    ("RandomErasing", "mu_random_erasing", {"factor": (1.0, 1.0), "scale": (1.0, 1.0), "fill_value": 0.5, "seed": 3},
     {"fill_value": (ctypes.c_double * 1)(0.5), "n_fill_value": 1}, IMAGE, 0),
    ("RandomErasing", "mu_random_erasing", {"factor": (1.0, 1.0), "scale": (1.0, 1.0), "fill_value": (-1.0, 0.5, 3.0),
                                            "value_range": (-2, 2), "seed": 3},
     {"fill_value": BOUNDARIES, "n_fill_value": 3}, COLOURS, 0),
    ("RandomPerspective", "mu_random_perspective", {"factor": (1.0, 1.0), "scale": 0.0, "seed": 3}, {}, IMAGE, 0),
    ("RandomCrop", "mu_random_crop", {"height": 18, "width": 16, "seed": 3}, {}, IMAGE, 0),
]
# Random layers whose arguments here leave them no choice: they are compared in training.
NO_CHOICE = ("mu_random_brightness", "mu_random_rotation", "mu_random_zoom", "mu_random_translation", "mu_random_shear",
             "mu_random_crop", "mu_random_grayscale", "mu_random_color_degeneration", "mu_random_invert", "mu_solarization",
             "mu_random_hue", "mu_random_saturation", "mu_random_color_jitter", "mu_random_posterization", "mu_random_sharpness",
             "mu_random_gaussian_blur", "mu_random_erasing", "mu_random_perspective", "mu_equalization")
# Numbers around 100 with deviation 2 lose two digits; Keras computes their moments in f32.
ADAPT_TOLERANCE = {"f64": 1e-5, "f32": 1e-4}

# Layers of two inputs, or that Keras cannot put into a model: the shapes of the inputs.
DIRECT = [
    ("Equalization", "mu_equalization", {"value_range": (-8, 8), "bins": 64}, {}, [IMAGE]),
    ("Equalization", "mu_equalization", {"value_range": (-2, 3)}, {}, [(9, 8, 1)]),
    ("Dot", "mu_dot", {"axes": (2, 1)}, {"axes_per_input": [2, 1]}, [(3, 5), (5, 4)]),
    ("Dot", "mu_dot", {"axes": 1, "normalize": True}, {}, [(5,), (5,)]),
    ("Dot", "mu_dot", {"axes": -1}, {}, [(3, 5), (2, 5)]),
    ("Dot", "mu_dot", {"axes": (1, 2)}, {"axes_per_input": [1, 2]}, [(5,), (3, 5)]),
    ("Minimum", "mu_minimum_layer", {}, {}, [(3, 5), (3, 5)]), ("Maximum", "mu_maximum_layer", {}, {}, [(3, 5), (1, 5)]),
    ("Subtract", "mu_subtract_layer", {}, {}, [(3, 5), (3, 5)]), ("Subtract", "mu_subtract_layer", {}, {}, [(5,), (3, 5)]),
    ("Concatenate", "mu_concatenate", {"axis": 1}, {}, [(3, 5), (2, 5)]),
]

FRAMEWORK = "runs a part of a model that another framework's Python library computes"
BASE = "Python's base class; mu_layer_new makes a layer of C functions"
AUGMENTATION = "few users; compose it in a data set's map from the image functions, or with mu_layer_new"
SPECTRUM = "needs a Fourier transform, which is not among the ops"
# Classes that Muster lacks. A row whose class is there does no harm and can go.
NOT_THERE = {
    **dict.fromkeys(("FlaxLayer", "JaxLayer", "TFSMLayer", "TorchModuleWrapper"), FRAMEWORK),
    **dict.fromkeys(("Layer", "Wrapper"), BASE),
    **dict.fromkeys(("AugMix", "ContrastLimitedAdaptiveHistogramEqualization", "RandomElasticTransform"), AUGMENTATION),
    **dict.fromkeys(("MelSpectrogram", "STFTSpectrogram"), SPECTRUM),
    "GroupedQueryAttention": "is there under the name that Keras's JSON gives it, GroupQueryAttention",
    "InputSpec": "describes what a layer of Python's takes; it is no layer",
    "Lambda": "holds a Python function; mu_layer_new takes a C function",
    "MaxNumBoundingBoxes": "changes bounding boxes, which Muster's layers do not carry",
    "Pipeline": "a list of preprocessing layers; mu_sequential is one",
}


KERAS_NAMES = {"no_bias": "use_bias", "no_center": "center", "no_scale": "scale"}


def ours_of(options, different):
    """Keras's arguments as Muster takes them; an array in place of a number replaces it."""
    replaced = {name.removesuffix("_per_axis").removesuffix("_per_side").removesuffix("_per_input") for name in different} | \
               {KERAS_NAMES.get(name, name) for name in different}
    return {key: value for key, value in options.items() if key not in replaced} | \
           {key: value for key, value in different.items() if value is not None}


def keras_model(layer, shape, dtype):
    return tf.keras.Sequential([tf.keras.Input(shape, dtype=dtype), layer])


def compute(mu, model, weights, x, training=False):
    if weights:
        mu.mu_model_build(model, x.ndim - 1, list(x.shape[1:]))
        mu.write_weights(model, {key: weights[key] for key in weights})
    return mu.array(mu.mu_call(model=model, x=mu.tensor(x), training=training))


def settle(layer):
    """Keras's Normalization uses its weights only after this, which loading a file calls."""
    if hasattr(layer, "finalize_state"):
        layer.finalize_state()


def compare_json(mu, keras_layer, ours, weights, x, wanted, training):
    """How far results are from `wanted` when each side reads the other's JSON."""
    shape, dtype = x.shape[1:], x.dtype.name
    text = mu.mu_layer_config(ours).decode()
    read = tf.keras.layers.deserialize(json.loads(text)["config"]["layers"][-1])
    theirs = keras_model(read, shape, dtype)
    for name, variable in named(theirs):
        variable.assign(weights[name])
    settle(read)
    back = off(theirs(x, training=training).numpy(), wanted)
    again = mu.mu_layer_from_config(json.dumps(tf.keras.layers.serialize(keras_layer)))
    return back, off(compute(mu, mu.model([again]), weights, x, training), wanted)


def report_row(report, name, options, floatx, far):
    given = "".join(f", {key} {value}" for key, value in options.items())
    report.check(f"{name}{given}, {floatx}",
                 "results within {:.1e}, read by Keras {:.1e}, read from Keras {:.1e}".format(*far),
                 max(far) <= TOLERANCE[floatx])


def compare_layer(report, mu, floatx, row):
    keras_name, name, options, different, shape, whole = (*row, 0)[:6]
    set_floatx(mu, floatx)
    generator, training = np.random.default_rng(5), name in NO_CHOICE
    x = generator.integers(0, whole, (6, *shape)).astype(np.int32) if whole else \
        generator.normal(1, 2, (6, *shape)).astype(FLOATX[floatx])
    keras_layer = getattr(tf.keras.layers, keras_name)(**options)
    theirs = keras_model(keras_layer, shape, x.dtype.name)
    weights = random_model(theirs)
    settle(keras_layer)
    wanted = theirs(x, training=training).numpy()
    with mu.pool():
        ours = mu.model([getattr(mu, name)(**ours_of(options, different))])
        far = [off(compute(mu, ours, weights, x, training), wanted),
               *compare_json(mu, keras_layer, ours, weights, x, wanted, training)]
    report_row(report, name, options, floatx, far)


def compare_direct(report, mu, floatx, row):
    keras_name, name, options, different, shapes = row
    set_floatx(mu, floatx)
    generator = np.random.default_rng(5)
    x = [generator.normal(1, 2, (6, *shape)).astype(FLOATX[floatx]) for shape in shapes]
    given, training = x if len(x) > 1 else x[0], {"training": True} if name in NO_CHOICE else {}
    keras_layer = getattr(tf.keras.layers, keras_name)(**options)
    wanted = keras_layer(given, **training).numpy()
    with mu.pool():
        ours = getattr(mu, name)(**ours_of(options, different))
        inputs = mu.values([mu.tensor(part) for part in x])
        read = tf.keras.layers.deserialize(json.loads(mu.mu_layer_config(ours).decode()))
        again = mu.mu_layer_from_config(json.dumps(tf.keras.layers.serialize(keras_layer)))
        far = [off(mu.array(mu.mu_call(model=ours, inputs=inputs, **training)), wanted), off(read(given, **training).numpy(), wanted),
               off(mu.array(mu.mu_call(model=again, inputs=inputs, **training)), wanted)]
    report_row(report, name, options, floatx, far)


def integer_models():
    """Models whose inputs are integers: name, model, the inputs' highest values."""
    layers, methods = tf.keras.layers, ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "area")
    for dtype, highest in (("uint8", 255), ("int32", 1000)):
        image = layers.Input((9, 8, 3), dtype=dtype)
        outputs = [layers.Resizing(5, 23, interpolation=method, antialias=antialias)(image)
                   for method in methods for antialias in (False, True)]
        outputs += [layers.UpSampling2D((3, 2), interpolation=method)(image) for method in methods]
        outputs.append(layers.Rescaling(1 / 255)(layers.Resizing(4, 19, crop_to_aspect_ratio=True)(image)))
        yield f"Resizing and UpSampling2D of {dtype}", tf.keras.Model(image, outputs), [highest]
    tokens, weights = layers.Input((3,), dtype="int32"), layers.Input((3,))
    y = layers.Rescaling(2)(layers.CategoryEncoding(5, output_mode="count")(tokens, count_weights=weights))
    yield "CategoryEncoding with count_weights", tf.keras.Model([tokens, weights], y), [4, None]


def compare_integers(report, mu, row):
    """What such a model predicts here, read from Keras's JSON, and in Keras, read from ours: mixed pixels may round apart."""
    name, theirs, limits = row
    set_floatx(mu, "f32")
    generator = np.random.default_rng(7)
    x = [generator.normal(size=(6, *tensor.shape[1:])).astype(np.float32) if highest is None else
         generator.integers(0, highest + 1, (6, *tensor.shape[1:])).astype(tensor.dtype)
         for tensor, highest in zip(theirs.inputs, limits)]
    wanted = [np.asarray(y) for y in tf.nest.flatten(theirs(x if len(x) > 1 else x[0]))]
    with mu.pool():
        ours = mu.mu_layer_from_config(theirs.to_json())
        outputs = mu.mu_call_values(model=ours, inputs=mu.values([mu.tensor(part) for part in x]))
        seen = [mu.array(mu.mu_at(outputs, i)) for i in range(len(wanted))]
        again = tf.keras.models.model_from_json(mu.mu_layer_config(ours).decode())
    back = [np.asarray(y) for y in tf.nest.flatten(again(x if len(x) > 1 else x[0]))]
    types = [a.dtype for a in seen] == [b.dtype for b in wanted] and \
        all(b.dtype.kind == "f" or np.abs(a.astype(int) - b.astype(int)).max() <= 1 for a, b in zip(seen, wanted))
    others = [np.abs(a.astype(float) - b).max() if b.dtype.kind == "f" else np.mean(a != b) for a, b in zip(seen, wanted)]
    report.check(name, f"{'same' if types else 'other'} types, differences {max(others):.1e}",
                 types and max(others) <= 1e-2 and all(np.array_equal(a, b) for a, b in zip(back, wanted)))


def compare_adapt(report, mu, floatx):
    """Mean and variance of batches of different sizes, and what the layer makes of data then."""
    set_floatx(mu, floatx)
    x = np.random.default_rng(5).normal(100, 2, (50, 7, 3)).astype(FLOATX[floatx])
    theirs = tf.keras.layers.Normalization()
    theirs.adapt(x)
    with mu.pool():
        ours = mu.mu_normalization()
        data = mu.mu_dataset_batch(dataset=mu.mu_dataset_from_tensor_slices(mu.mu_of(mu.tensor(x))), batch_size=16)
        mu.mu_normalization_adapt(ours, data)
        far = off(mu.array(mu.mu_call(model=ours, x=mu.tensor(x))), theirs(x).numpy())
    report.check(f"mu_normalization_adapt, {floatx}", f"results within {far:.1e}", far <= ADAPT_TOLERANCE[floatx])


# Data of the bins' boundaries: name, numbers, bins, epsilon, rows of a batch (None: an array).
BINS = [("normal", lambda r: r.normal(3, 2, (1000, 3)), 10, 0.01, 64), ("an array", lambda r: r.normal(0, 1, 5000), 7, 0.01, None),
        ("few", lambda r: r.normal(0, 1, 30), 4, 0.01, 9), ("fewer than bins", lambda r: r.normal(0, 1, 5), 8, 0.01, 5),
        ("coarse", lambda r: r.exponential(1, 3000), 5, 0.2, 500), ("uneven batches", lambda r: r.gamma(2, 3, 777), 20, 0.03, 100),
        ("integers", lambda r: r.permutation(600).astype(np.int64), 12, 0.01, 150), ("one batch", lambda r: r.uniform(-1, 1, 2048), 49, 0.005, 2048),
        ("bins that no float divides", lambda r: r.normal(0, 1, 4000), 49, 0.01, 1000), ("large", lambda r: 1e30 * r.normal(0, 1, 400), 3, 0.01, 50)]


@contextlib.contextmanager
def stable_sort():
    """Keras sorts summaries with NumPy's default, in which the order of equal values depends on the processor."""
    unstable = np.argsort
    np.argsort = lambda array: unstable(array, kind="stable")
    try:
        yield
    finally:
        np.argsort = unstable


def compare_bins(report, mu, row):
    """Boundaries that adapt finds, in several batches and in one, and the layer with them in both directions."""
    name, numbers, bins, epsilon, rows = row
    set_floatx(mu, "f64")
    x = numbers(np.random.default_rng(11))
    theirs = tf.keras.layers.Discretization(num_bins=bins, epsilon=epsilon)
    with stable_sort() if x.dtype == np.int64 else contextlib.nullcontext():
        theirs.adapt(x if rows is None else tf.data.Dataset.from_tensor_slices(x).batch(rows))
    wanted = np.array(theirs.bin_boundaries)
    with mu.pool():
        ours = mu.mu_discretization(num_bins=bins, epsilon=epsilon)
        mu.mu_adapt(ours, mu.tensor(x) if rows is None else
                    mu.mu_dataset_batch(dataset=mu.mu_dataset_from_tensor_slices(mu.mu_of(mu.tensor(x))), batch_size=rows))
        config = json.loads(mu.mu_layer_config(ours).decode())
        read = tf.keras.layers.deserialize(config)
        again = mu.mu_layer_from_config(json.dumps(tf.keras.layers.serialize(theirs)))
        same = all(np.array_equal(mu.array(mu.mu_call(model=layer, x=mu.tensor(x))), theirs(x).numpy()) for layer in (ours, again))
        same &= np.array_equal(read(x).numpy(), theirs(x).numpy()) and read.num_bins == bins and read.epsilon == epsilon
    found = np.array(config["config"]["bin_boundaries"])
    report.check(f"mu_adapt of mu_discretization, {name}", f"{len(wanted)} boundaries", np.array_equal(found, wanted) and same)


def projection(places, values):
    """The eight numbers of the projection that takes places to values, as Keras's transforms have them."""
    (x, y), (u, v), n = places.T, values.T, len(places)
    rows = np.zeros((2 * n, 8))
    rows[:n, :3], rows[n:, 3:6] = np.stack([x, y, np.ones(n)], 1), np.stack([x, y, np.ones(n)], 1)
    rows[:n, 6:], rows[n:, 6:] = np.stack([-u * x, -u * y], 1), np.stack([-v * x, -v * y], 1)
    return np.linalg.lstsq(rows, np.concatenate([u, v]), rcond=None)[0]


def compare_perspective(report, mu, floatx):
    """Pixels that hold their own coordinates tell where each corner went; Keras moves the corners to the same places."""
    set_floatx(mu, floatx)
    height, width, n, far = 9, 12, 20, []
    corners = np.array([[0, 0], [width - 1, 0], [0, height - 1], [width - 1, height - 1]], float)
    row, column = np.mgrid[:height, :width]
    image = np.stack([column, row, np.ones_like(row)], -1).astype(np.float32)  # a pixel mixed with the filling is not 1
    with mu.pool():
        ours = mu.mu_random_perspective(factor=[1.0, 1.0], scale=0.5, fill_value=-9.0, seed=3)
        seen = mu.array(mu.mu_call(model=ours, x=mu.tensor(np.stack([image] * n)), training=True))
    for y in seen:
        inside = np.abs(y[..., 2] - 1) < 1e-5
        h = np.append(projection(np.stack([column[inside], row[inside]], 1).astype(float), y[inside, :2].astype(float)), 1)
        back = np.linalg.inv(h.reshape(3, 3)) @ np.concatenate([corners, np.ones((4, 1))], 1).T
        ends = (back[:2] / back[2]).T
        far.append(max(0, (np.abs(ends - corners) - 0.25 * corners).max() - 1e-3) / width)
        theirs = tf.keras.ops.image.perspective_transform(image, corners.astype(np.float32), ends.astype(np.float32),
                                                          fill_value=-9.0).numpy()
        far.append(np.abs(theirs - y).max() / width)
    report.check(f"mu_random_perspective, places, {floatx}", f"{n} images within {max(far):.1e}", max(far) <= 1e-3)


def compare_rand_augment(report, mu, floatx):
    """Each image is what one of Keras's eleven layers makes of it, and each of them has its turn."""
    set_floatx(mu, floatx)
    x = np.random.default_rng(5).uniform(60, 190, (2, 9, 8, 3)).astype(FLOATX[floatx])
    theirs = tf.keras.layers.RandAugment(factor=(0.25, 0.25), seed=1)
    names, contrast, solarization = theirs._AUGMENT_LAYERS, "random_contrast", "solarization"
    # Contrast has a choice, from 0.75 to 1.25, and so has Keras's solarization, whose least numbers are others there.
    outcomes = [(name, np.asarray(getattr(theirs, name)(x, training=True))) for name in names if name not in (contrast, solarization)
                for _ in range(24 if name == "random_shear" else 1)]  # to any side
    outcomes.append((solarization, np.where(x + 63.75 < 63.75, x, 255 - np.clip(x + 63.75, 0, 255))))
    found, far, runs = set(), 0.0, 50
    for seed in range(1, runs + 1):
        with mu.pool():
            ours = mu.mu_rand_augment(num_ops=1, factor=[0.25, 0.25], seed=seed)
            seen = mu.array(mu.mu_call(model=ours, x=mu.tensor(x), training=True))
        for i, image in enumerate(seen):
            apart, name = min((off(image, outcome[i]), name) for name, outcome in outcomes)
            mean = x[i].mean((0, 1))
            factor = float(((image - mean) * (x[i] - mean)).sum() / ((x[i] - mean) ** 2).sum())
            if 0.75 <= factor <= 1.25 and off(image, mean + factor * (x[i] - mean)) < apart:
                apart, name = off(image, mean + factor * (x[i] - mean)), contrast
            far, found = max(far, apart), found | {name}
    report.check(f"mu_rand_augment, {floatx}", f"{2 * runs} images by {len(found)} of {len(names)} layers within {far:.1e}",
                 far <= 2e-5 and found == set(names))


def compare_mixing(report, mu, floatx):
    """What was mixed shows in the labels of one class each; Keras makes the same of that."""
    set_floatx(mu, floatx)
    rows = 12
    x, labels = np.random.default_rng(6).normal(size=(rows, 7, 6, 3)).astype(FLOATX[floatx]), np.eye(rows, dtype=FLOATX[floatx])
    for name, function in (("MixUp", "mu_mix_up"), ("CutMix", "mu_cut_mix")):
        with mu.pool():
            batch = mu.mu_map_of(2, ["images", "labels"], [mu.mu_of(mu.tensor(array)) for array in (x, labels)])
            seen = mu.mu_call_values(model=getattr(mu, function)(seed=4), inputs=batch, training=True)
            images, mixed = (mu.array(mu.mu_at(seen, i)) for i in range(2))
        share = np.diag(mixed).copy()
        others = mixed - np.diag(share)
        order = np.where(others.max(1) > 0, others.argmax(1), np.arange(rows))
        made = {"mix_weight": share, "permutation_order": order, "batch_masks": images != x}
        theirs = getattr(tf.keras.layers, name)()
        far = max(off(images, theirs.transform_images(x, made, training=True)), off(mixed, theirs.transform_labels(labels, made, training=True)))
        cut = (images != x).any(-1).sum((1, 2)) / 42
        area = float(np.abs(cut - (1 - share))[order != np.arange(rows)].max()) if name == "CutMix" else 0.0
        report.check(f"{function}, {floatx}", f"images and labels of a batch within {far:.1e}" +
                     (f", parts of the area within {area:.2f}" if area else ""), far <= TOLERANCE[floatx] and area < 0.35)


def has_class(mu, keras_name):
    try:
        mu.mu_layer_from_config(json.dumps({"class_name": keras_name, "config": {}}))
    except muster.MusterError as error:
        return "no layer of Keras's class" not in str(error)
    return True


def compare_classes(report, mu):
    """Every class of keras.layers, by its own name, is there or has a reason."""
    classes = {value.__name__ for value in vars(keras.layers).values() if inspect.isclass(value)}
    with mu.pool():
        lacking = sorted(name for name in classes if not has_class(mu, name))
    unexplained = [name for name in lacking if name not in NOT_THERE]
    report.check("classes of keras.layers", f"{len(classes) - len(lacking)} of {len(classes)} are there, "
                 f"{len(lacking) - len(unexplained)} have a reason" +
                 (f", these have none: {', '.join(unexplained)}" if unexplained else ""), not unexplained)


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("layers")
    for floatx in FLOATX:
        for compare, row in [(compare_layer, row) for row in LAYERS] + [(compare_direct, row) for row in DIRECT]:
            if only in row[1] and (floatx == "f32" or row[1] not in F32_ONLY):
                with report.guard(f"{row[1]}, {floatx}"):
                    compare(report, mu, floatx, row)
        if only in "mu_random_perspective" and floatx == "f32":
            with report.guard(f"mu_random_perspective, {floatx}"):
                compare_perspective(report, mu, floatx)
        if only in "mu_rand_augment" and floatx == "f32":
            with report.guard(f"mu_rand_augment, {floatx}"):
                compare_rand_augment(report, mu, floatx)
        if only in "mu_mix_up, mu_cut_mix":
            with report.guard(f"mu_mix_up, mu_cut_mix, {floatx}"):
                compare_mixing(report, mu, floatx)
        if only in "mu_normalization_adapt":
            with report.guard(f"mu_normalization_adapt, {floatx}"):
                compare_adapt(report, mu, floatx)
    for row in BINS:
        if only in "mu_discretization":
            with report.guard(f"mu_adapt of mu_discretization, {row[0]}"):
                compare_bins(report, mu, row)
    for row in integer_models() if only in "integers" else []:
        with report.guard(row[0]):
            compare_integers(report, mu, row)
    if only in "classes":
        compare_classes(report, mu)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
