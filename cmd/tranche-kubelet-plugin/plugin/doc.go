// Package plugin is the command line of the kubelet plugin, as tranche-kubelet-plugin
// and tranche-simulator have it. command.go is the command and its subcommands,
// flags.go and uninstall.go their flags, and host.go the machine that the plugin runs
// on if it is not simulated.
//
// It may import everything but test/simulator and the other commands.
package plugin
