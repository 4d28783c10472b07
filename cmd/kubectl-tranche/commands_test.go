package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tranche-dev/tranche/test/golden"
)

// TestCommands: scripts rely on commands and flags. api/public-names.txt has them, too.
func TestCommands(t *testing.T) {
	var b strings.Builder
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		fmt.Fprintln(&b, "kubectl tranche"+strings.TrimPrefix(cmd.UseLine(), "kubectl tranche"))
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name += ", -" + f.Shorthand
			}
			line := fmt.Sprintf("kubectl tranche%s: %s %s", strings.TrimPrefix(cmd.CommandPath(), "kubectl tranche"), name, f.Value.Type())
			if f.DefValue != "" && f.DefValue != "[]" {
				line += " = " + f.DefValue
			}
			fmt.Fprintln(&b, line)
		})
		for _, below := range cmd.Commands() {
			if !below.Hidden && below.Name() != "help" {
				walk(below)
			}
		}
	}
	walk(newCommand(nil))
	golden.Equal(t, "testdata/commands.txt", b.String())
}
