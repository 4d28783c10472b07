// Package disk is what the simulated drivers of all vendors keep in a folder: a
// state that several processes share and that outlives them (store.go), and
// files and device nodes (files.go).
package disk
