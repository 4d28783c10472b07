// Package kmod takes a kernel module of the host out and puts it in again, for
// settings that a driver takes over only when it is loaded.
//
// [Module.Reload] does it (module.go, host.go): with modprobe, or, where the Kernel Module
// Management operator brings the module, by having that load it ([KMM], kmm.go).
// Whatever fails on the way, the module is put in at the end: a file tells that it
// is out, so that [Module.Resume] ends what a plugin that was killed has begun.
//
// Imports: pkg/gpu, pkg/sleep.
package kmod
