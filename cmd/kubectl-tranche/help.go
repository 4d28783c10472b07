package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// hideGlobalFlags leaves the flags of kubectl out of the help of all commands, which names the command that
// lists them.
func hideGlobalFlags(root *cobra.Command) {
	before, rest, _ := strings.Cut(strings.ReplaceAll(root.UsageTemplate(), ".LocalFlags.", ".LocalNonPersistentFlags."), "{{if .HasAvailableInheritedFlags}}")
	_, after, _ := strings.Cut(rest, "{{end}}")
	root.SetUsageTemplate(before + "\n\nUse \"kubectl tranche options\" for the flags of all commands, such as --namespace and --context." + after)
}

func newOptionsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags of all commands",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(o.out, "These flags can be given to all commands:\n\n", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

// noCommand refuses what is not a subcommand, and proposes those that may be meant.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	message := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(message)
}
