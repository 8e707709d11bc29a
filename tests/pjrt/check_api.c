// Compiled only, by check_api.sh: our declarations of PJRT against a plugin's own header.
//
// A newer plugin's structs may be larger, so sizes must be at least ours; offsets must be equal.
#include "engine/pjrt/api.h"
#include "topology_api.h"

#include <pjrt_c_api.h>

#define SIZE(own, theirs) _Static_assert(sizeof(own) >= theirs##_STRUCT_SIZE, "size of " #own)
#define FIELD(own, field, theirs, other) \
    _Static_assert(offsetof(own, field) == offsetof(theirs, other), #own "." #field)
#define PLACE(number, name) \
    _Static_assert(offsetof(pj_api, functions) + sizeof(void *) * (number) == offsetof(PJRT_Api, name), #name)

PLACE(PJ_ERROR_DESTROY, PJRT_Error_Destroy);
PLACE(PJ_ERROR_MESSAGE, PJRT_Error_Message);
PLACE(PJ_ERROR_GET_CODE, PJRT_Error_GetCode);
PLACE(PJ_PLUGIN_INITIALIZE, PJRT_Plugin_Initialize);
PLACE(PJ_EVENT_DESTROY, PJRT_Event_Destroy);
PLACE(PJ_EVENT_IS_READY, PJRT_Event_IsReady);
PLACE(PJ_EVENT_AWAIT, PJRT_Event_Await);
PLACE(PJ_EVENT_ON_READY, PJRT_Event_OnReady);
PLACE(PJ_CLIENT_CREATE, PJRT_Client_Create);
PLACE(PJ_CLIENT_DESTROY, PJRT_Client_Destroy);
PLACE(PJ_CLIENT_PLATFORM_NAME, PJRT_Client_PlatformName);
PLACE(PJ_CLIENT_PLATFORM_VERSION, PJRT_Client_PlatformVersion);
PLACE(PJ_CLIENT_ADDRESSABLE_DEVICES, PJRT_Client_AddressableDevices);
PLACE(PJ_CLIENT_COMPILE, PJRT_Client_Compile);
PLACE(PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, PJRT_Client_BufferFromHostBuffer);
PLACE(PJ_DEVICE_DESCRIPTION_ID, PJRT_DeviceDescription_Id);
PLACE(PJ_DEVICE_DESCRIPTION_ATTRIBUTES, PJRT_DeviceDescription_Attributes);
PLACE(PJ_DEVICE_GET_DESCRIPTION, PJRT_Device_GetDescription);
PLACE(PJ_DEVICE_MEMORY_STATS, PJRT_Device_MemoryStats);
PLACE(PJ_EXECUTABLE_DESTROY, PJRT_Executable_Destroy);
PLACE(PJ_EXECUTABLE_NUM_OUTPUTS, PJRT_Executable_NumOutputs);
PLACE(PJ_LOADED_DESTROY, PJRT_LoadedExecutable_Destroy);
PLACE(PJ_LOADED_GET_EXECUTABLE, PJRT_LoadedExecutable_GetExecutable);
PLACE(PJ_LOADED_ADDRESSABLE_DEVICES, PJRT_LoadedExecutable_AddressableDevices);
PLACE(PJ_LOADED_EXECUTE, PJRT_LoadedExecutable_Execute);
PLACE(PJ_BUFFER_DESTROY, PJRT_Buffer_Destroy);
PLACE(PJ_BUFFER_TO_HOST_BUFFER, PJRT_Buffer_ToHostBuffer);
PLACE(PJ_BUFFER_IS_ON_CPU, PJRT_Buffer_IsOnCpu);
PLACE(PJ_CLIENT_PROCESS_INDEX, PJRT_Client_ProcessIndex);
PLACE(PJ_CLIENT_DEVICES, PJRT_Client_Devices);
PLACE(PJ_BUFFER_READY_EVENT, PJRT_Buffer_ReadyEvent);
PLACE(PJ_BUFFER_UNSAFE_POINTER, PJRT_Buffer_UnsafePointer);
PLACE(PJ_EXECUTABLE_MEMORY_STATS, PJRT_Executable_GetCompiledMemoryStats);
PLACE(PJ_TOPOLOGY_CREATE, PJRT_TopologyDescription_Create);
PLACE(PJ_TOPOLOGY_DESCRIPTIONS, PJRT_TopologyDescription_GetDeviceDescriptions);
PLACE(PJ_COMPILE, PJRT_Compile);

FIELD(pj_api, version, PJRT_Api, pjrt_api_version);
FIELD(pj_version, minor, PJRT_Api_Version, minor_version);

SIZE(pj_memory_stats_args, PJRT_Device_MemoryStats_Args);
FIELD(pj_memory_stats_args, bytes_limit, PJRT_Device_MemoryStats_Args, bytes_limit);
FIELD(pj_memory_stats_args, peak_pool_bytes, PJRT_Device_MemoryStats_Args, peak_pool_bytes);
SIZE(pj_error_args, PJRT_Error_Destroy_Args);
SIZE(pj_error_message_args, PJRT_Error_Message_Args);
FIELD(pj_error_message_args, message, PJRT_Error_Message_Args, message);
SIZE(pj_error_code_args, PJRT_Error_GetCode_Args);
FIELD(pj_error_code_args, code, PJRT_Error_GetCode_Args, code);
SIZE(pj_plugin_args, PJRT_Plugin_Initialize_Args);
SIZE(pj_event_args, PJRT_Event_Await_Args);
SIZE(pj_event_ready_args, PJRT_Event_IsReady_Args);
FIELD(pj_event_ready_args, ready, PJRT_Event_IsReady_Args, is_ready);

SIZE(pj_event_on_ready_args, PJRT_Event_OnReady_Args);
FIELD(pj_event_on_ready_args, callback, PJRT_Event_OnReady_Args, callback);
FIELD(pj_event_on_ready_args, arg, PJRT_Event_OnReady_Args, user_arg);

SIZE(pj_named_value, PJRT_NamedValue);
FIELD(pj_named_value, type, PJRT_NamedValue, type);
FIELD(pj_named_value, value, PJRT_NamedValue, int64_value);
FIELD(pj_named_value, value_size, PJRT_NamedValue, value_size);
SIZE(pj_client_create_args, PJRT_Client_Create_Args);
FIELD(pj_client_create_args, options, PJRT_Client_Create_Args, create_options);
FIELD(pj_client_create_args, client, PJRT_Client_Create_Args, client);
FIELD(pj_client_create_args, get, PJRT_Client_Create_Args, kv_get_callback);
FIELD(pj_client_create_args, put_arg, PJRT_Client_Create_Args, kv_put_user_arg);
FIELD(pj_client_create_args, try_get, PJRT_Client_Create_Args, kv_try_get_callback);
SIZE(pj_key_get_args, PJRT_KeyValueGetCallback_Args);
FIELD(pj_key_get_args, timeout_ms, PJRT_KeyValueGetCallback_Args, timeout_in_ms);
FIELD(pj_key_get_args, error, PJRT_KeyValueGetCallback_Args, callback_error);
FIELD(pj_key_get_args, value, PJRT_KeyValueGetCallback_Args, value);
FIELD(pj_key_get_args, delete_value, PJRT_KeyValueGetCallback_Args, value_deleter_callback);
SIZE(pj_key_try_get_args, PJRT_KeyValueTryGetCallback_Args);
FIELD(pj_key_try_get_args, arg, PJRT_KeyValueTryGetCallback_Args, user_arg);
FIELD(pj_key_try_get_args, delete_value, PJRT_KeyValueTryGetCallback_Args, value_deleter_callback);
SIZE(pj_key_put_args, PJRT_KeyValuePutCallback_Args);
FIELD(pj_key_put_args, value, PJRT_KeyValuePutCallback_Args, value);
FIELD(pj_key_put_args, arg, PJRT_KeyValuePutCallback_Args, user_arg);
SIZE(pj_client_args, PJRT_Client_Destroy_Args);
SIZE(pj_client_process_args, PJRT_Client_ProcessIndex_Args);
FIELD(pj_client_process_args, index, PJRT_Client_ProcessIndex_Args, process_index);
SIZE(pj_client_text_args, PJRT_Client_PlatformName_Args);
SIZE(pj_client_text_args, PJRT_Client_PlatformVersion_Args);
FIELD(pj_client_text_args, text, PJRT_Client_PlatformVersion_Args, platform_version);
SIZE(pj_client_devices_args, PJRT_Client_AddressableDevices_Args);
FIELD(pj_client_devices_args, devices, PJRT_Client_AddressableDevices_Args, addressable_devices);
FIELD(pj_client_devices_args, n, PJRT_Client_AddressableDevices_Args, num_addressable_devices);

SIZE(pj_program, PJRT_Program);
FIELD(pj_program, format, PJRT_Program, format);
SIZE(pj_compile_args, PJRT_Client_Compile_Args);
FIELD(pj_compile_args, options, PJRT_Client_Compile_Args, compile_options);
FIELD(pj_compile_args, loaded, PJRT_Client_Compile_Args, executable);
SIZE(pj_loaded_args, PJRT_LoadedExecutable_Destroy_Args);
SIZE(pj_loaded_executable_args, PJRT_LoadedExecutable_GetExecutable_Args);
SIZE(pj_loaded_devices_args, PJRT_LoadedExecutable_AddressableDevices_Args);
FIELD(pj_loaded_devices_args, devices, PJRT_LoadedExecutable_AddressableDevices_Args, addressable_devices);
FIELD(pj_loaded_devices_args, n, PJRT_LoadedExecutable_AddressableDevices_Args, num_addressable_devices);
SIZE(pj_executable_args, PJRT_Executable_Destroy_Args);
SIZE(pj_outputs_args, PJRT_Executable_NumOutputs_Args);

SIZE(pj_execute_options, PJRT_ExecuteOptions);
FIELD(pj_execute_options, launch_id, PJRT_ExecuteOptions, launch_id);
FIELD(pj_execute_options, not_donated, PJRT_ExecuteOptions, non_donatable_input_indices);
SIZE(pj_execute_args, PJRT_LoadedExecutable_Execute_Args);
FIELD(pj_execute_args, arguments, PJRT_LoadedExecutable_Execute_Args, argument_lists);
FIELD(pj_execute_args, outputs, PJRT_LoadedExecutable_Execute_Args, output_lists);
FIELD(pj_execute_args, complete, PJRT_LoadedExecutable_Execute_Args, device_complete_events);
FIELD(pj_execute_args, device, PJRT_LoadedExecutable_Execute_Args, execute_device);

SIZE(pj_from_host_args, PJRT_Client_BufferFromHostBuffer_Args);
FIELD(pj_from_host_args, dims, PJRT_Client_BufferFromHostBuffer_Args, dims);
FIELD(pj_from_host_args, semantics, PJRT_Client_BufferFromHostBuffer_Args, host_buffer_semantics);
FIELD(pj_from_host_args, device, PJRT_Client_BufferFromHostBuffer_Args, device);
FIELD(pj_from_host_args, done, PJRT_Client_BufferFromHostBuffer_Args, done_with_host_buffer);
FIELD(pj_from_host_args, buffer, PJRT_Client_BufferFromHostBuffer_Args, buffer);
SIZE(pj_tiled_layout, PJRT_Buffer_MemoryLayout_Tiled);
FIELD(pj_tiled_layout, n_tiles, PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
SIZE(pj_layout, PJRT_Buffer_MemoryLayout);
FIELD(pj_layout, tiled, PJRT_Buffer_MemoryLayout, tiled);
FIELD(pj_layout, type, PJRT_Buffer_MemoryLayout, type);
SIZE(pj_to_host_args, PJRT_Buffer_ToHostBuffer_Args);
FIELD(pj_to_host_args, layout, PJRT_Buffer_ToHostBuffer_Args, host_layout);
FIELD(pj_to_host_args, bytes, PJRT_Buffer_ToHostBuffer_Args, dst_size);
FIELD(pj_to_host_args, event, PJRT_Buffer_ToHostBuffer_Args, event);
SIZE(pj_buffer_args, PJRT_Buffer_Destroy_Args);
PLACE(PJ_BUFFER_COPY_TO_DEVICE, PJRT_Buffer_CopyToDevice);
SIZE(pj_copy_to_device_args, PJRT_Buffer_CopyToDevice_Args);
FIELD(pj_copy_to_device_args, copy, PJRT_Buffer_CopyToDevice_Args, dst_buffer);
SIZE(pj_buffer_on_cpu_args, PJRT_Buffer_IsOnCpu_Args);
FIELD(pj_buffer_on_cpu_args, on_cpu, PJRT_Buffer_IsOnCpu_Args, is_on_cpu);
SIZE(pj_buffer_event_args, PJRT_Buffer_ReadyEvent_Args);
FIELD(pj_buffer_event_args, event, PJRT_Buffer_ReadyEvent_Args, event);
SIZE(pj_buffer_address_args, PJRT_Buffer_UnsafePointer_Args);
FIELD(pj_buffer_address_args, address, PJRT_Buffer_UnsafePointer_Args, buffer_pointer);
SIZE(pj_device_description_args, PJRT_Device_GetDescription_Args);
FIELD(pj_device_description_args, description, PJRT_Device_GetDescription_Args, device_description);
SIZE(pj_description_id_args, PJRT_DeviceDescription_Id_Args);
FIELD(pj_description_id_args, id, PJRT_DeviceDescription_Id_Args, id);
SIZE(pj_description_attributes_args, PJRT_DeviceDescription_Attributes_Args);
FIELD(pj_description_attributes_args, n, PJRT_DeviceDescription_Attributes_Args, num_attributes);
FIELD(pj_description_attributes_args, attributes, PJRT_DeviceDescription_Attributes_Args, attributes);
SIZE(pj_program_memory_args, PJRT_Executable_GetCompiledMemoryStats_Args);
FIELD(pj_program_memory_args, temporaries, PJRT_Executable_GetCompiledMemoryStats_Args, temp_size_in_bytes);
FIELD(pj_program_memory_args, peak, PJRT_Executable_GetCompiledMemoryStats_Args, peak_memory_in_bytes);

_Static_assert(PJ_HOST_DURING_CALL == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall, "semantics");
_Static_assert(PJ_VALUE_INT == PJRT_NamedValue_kInt64 && PJ_VALUE_BOOL == PJRT_NamedValue_kBool, "named values");
_Static_assert(PJ_PRED == PJRT_Buffer_Type_PRED && PJ_S8 == PJRT_Buffer_Type_S8 && PJ_S16 == PJRT_Buffer_Type_S16,
               "types");
_Static_assert(PJ_S32 == PJRT_Buffer_Type_S32 && PJ_S64 == PJRT_Buffer_Type_S64 && PJ_U8 == PJRT_Buffer_Type_U8,
               "types");
_Static_assert(PJ_F16 == PJRT_Buffer_Type_F16 && PJ_F32 == PJRT_Buffer_Type_F32 && PJ_F64 == PJRT_Buffer_Type_F64,
               "types");
_Static_assert(PJ_BF16 == PJRT_Buffer_Type_BF16, "types");
SIZE(pj_topology_create_args, PJRT_TopologyDescription_Create_Args);
FIELD(pj_topology_create_args, topology, PJRT_TopologyDescription_Create_Args, topology);
SIZE(pj_topology_descriptions_args, PJRT_TopologyDescription_GetDeviceDescriptions_Args);
FIELD(pj_topology_descriptions_args, n, PJRT_TopologyDescription_GetDeviceDescriptions_Args, num_descriptions);
SIZE(pj_compile_for_args, PJRT_Compile_Args);
FIELD(pj_compile_for_args, options, PJRT_Compile_Args, compile_options);
FIELD(pj_compile_for_args, executable, PJRT_Compile_Args, executable);
