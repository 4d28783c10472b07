package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No help page lists the flags of kubectl but the one of options.
func TestHelpHasOwnFlagsOnly(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		help := cmd.UsageString()
		assert.NotContains(t, help, "--certificate-authority", cmd.CommandPath())
		if cmd.Runnable() {
			assert.Contains(t, help, `Use "kubectl tranche options" for the flags of all commands`, cmd.CommandPath())
			assert.Contains(t, help, "Flags:", cmd.CommandPath())
		}
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() {
				walk(below)
			}
		}
	}
	root := newCommand(nil)
	root.InitDefaultHelpFlag()
	for _, below := range root.Commands() {
		below.InitDefaultHelpFlag()
		for _, deeper := range below.Commands() {
			deeper.InitDefaultHelpFlag()
		}
	}
	walk(root)

	out, err := run(t, "options")
	require.NoError(t, err)
	assert.Contains(t, out, "--certificate-authority")
	assert.Contains(t, out, "-n, --namespace")
	out, err = run(t, "why", "--help")
	require.NoError(t, err)
	assert.Contains(t, out, "-f, --filename")
	assert.Less(t, strings.Count(out, "\n"), 60)
}
