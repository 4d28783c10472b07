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
		fmt.Fprintln(&b, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name += ", -" + f.Shorthand
			}
			kind := f.Value.Type()
			if f.Name == "output" {
				kind = strings.TrimPrefix(f.Usage, "output format: ")
			}
			line := fmt.Sprintf("%s: %s %s", cmd.CommandPath(), name, kind)
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
