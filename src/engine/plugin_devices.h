// The devices of PJRT plugins under one runtime: a client for each plugin that has been started.
//
// A plugin is started when one of its devices is first requested. One that does not start is not started again: that
// can take seconds, and the reason stays the same. Used by device.c, whose table of devices contains this.
#ifndef MU_SRC_ENGINE_PLUGIN_DEVICES_H
#define MU_SRC_ENGINE_PLUGIN_DEVICES_H

#include "engine/pjrt/pjrt.h"

typedef struct mu_failed_plugin mu_failed_plugin;

typedef struct mu_plugin_devices {
    pthread_mutex_t lock; // of what follows
    mu_pjrt_client *clients;
    mu_device_world *world; // retained; for the clients to come; NULL: none
    mu_failed_plugin *failed;
} mu_plugin_devices;

void mu__plugins_init(mu_plugin_devices *plugins);
void mu__plugins_destroy(mu_plugin_devices *plugins); // ends the devices' threads

// mu__plugins_client returns the client of the plugin with this name, started on first use; NULL on error.
mu_pjrt_client *mu__plugins_client(mu_plugin_devices *plugins, const char *name);

// mu__plugins_of_kind returns the client of the first plugin that starts and whose devices are of this kind ("GPU"); if
// none is listed, the plugin with the kind's name is tried. `plugin` receives its name. For each plugin that does not
// start the log has one warning. NULL with the first plugin's error if none starts; `plugin` is then that one.
mu_pjrt_client *mu__plugins_of_kind(mu_plugin_devices *plugins, const char *kind, char plugin[MU_PJRT_NAME]);

// mu__plugins_try returns whether a plugin for this kind starts, and ends one that it has started for that. No error.
bool mu__plugins_try(mu_plugin_devices *plugins, const char *kind);

// mu__plugins_list writes ", XLA_CPU:0 to XLA_CPU:3" for each client.
void mu__plugins_list(mu_plugin_devices *plugins, char *text, size_t bytes);

// See mu__device_set_world. Plugins that did not start may do so in another world.
void mu__plugins_set_world(mu_plugin_devices *plugins, mu_device_world *world);

#endif
