// Package kmod reloads a kernel module of the host, for settings that a driver reads only when
// it is loaded.
//
// [Module.Reload] unloads the module with modprobe, and loads it with modprobe or, if the Kernel
// Module Management operator provides the module, through the operator ([KMM]). Whatever fails,
// the module is loaded at the end: a file marks that it is unloaded, so that [Module.Resume]
// loads it if the plugin was killed meanwhile.
package kmod
