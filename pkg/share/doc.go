// Package share sets up shares: devices that several claims can hold. pkg/profile computes which
// shares a GPU has.
//
// sharer.go changes the settings of GPUs for claims, daemon.go configures their MPS daemons,
// edits.go describes shares to containers. check.go finds daemons that have died. limiter.go has the
// kernel driver limit the memory of pods, where limitertrial.go has found that it does.
//
// state.go decides how the GPUs of the node are shared: it applies new settings to a GPU when no
// claim holds a share of it. daemonhealth.go has the state of the daemons.
package share
