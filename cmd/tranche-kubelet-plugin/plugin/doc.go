// Package plugin is the command line of the kubelet plugin. command.go is the command and its
// subcommands, flags.go and uninstall.go their flags, and host.go the machine that the plugin runs on.
//
// It may import everything but test/simulator and the other commands.
package plugin
