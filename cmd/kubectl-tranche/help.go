package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// hideGlobalFlags leaves the flags of kubectl out of the help of all commands, which names the command that
// lists them. A template in place of the function would link text/template, which calls methods by name: the
// linker would keep those of all API types, and the program be half as large again.
func hideGlobalFlags(root *cobra.Command) {
	usage, flags := root.UsageFunc(), root.PersistentFlags()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		flags.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		defer flags.VisitAll(func(f *pflag.Flag) { f.Hidden = false })
		if err := usage(cmd); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStderr(), "\nUse \"kubectl tranche options\" for the flags of all commands, such as --namespace and --context.")
		return err
	})
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
