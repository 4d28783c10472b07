package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/test/cluster/internal/build"
)

// optionalParts are what an argument can be.
func optionalParts() string { return strings.Join(build.Optional(), "|") }

func installCommand() *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use:       "install [" + optionalParts() + "]...",
		Short:     "Build what is missing of the cluster's parts, and optional ones (minutes the first time)",
		Args:      cobra.OnlyValidArgs,
		ValidArgs: build.Optional(),
		RunE: func(cmd *cobra.Command, optional []string) error {
			dir, err := build.DefaultDir()
			if err != nil {
				return err
			}
			say := progress()
			if len(dir.Missing(optional...)) == 0 {
				say("all parts are in %s", dir)
				return nil
			}
			if source == "" {
				if source, err = build.FindSource(); err != nil {
					return err
				}
			}
			say("building into %s", dir)
			return dir.Install(cmd.Context(), source, say, optional...)
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "folder of the Go module test/cluster (default: looked for from here upwards)")
	return cmd
}

func packCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "pack --out FILE.tar.xz",
		Short: "Write all built parts into one archive, for a machine without network",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return errors.New("--out is missing: the archive to write")
			}
			dir, err := build.DefaultDir()
			if err != nil {
				return err
			}
			return dir.Pack(cmd.Context(), out, progress())
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "archive to write")
	return cmd
}

func unpackCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unpack FILE.tar.xz",
		Short: "Install the parts from an archive that pack has written",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := build.DefaultDir()
			if err != nil {
				return err
			}
			return dir.Unpack(cmd.Context(), args[0], progress())
		},
	}
}

func pathCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "path [" + optionalParts() + "]",
		Short:     "Print the folder of the built programs (kubectl, helm and the others), or of an optional part",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: build.Optional(),
		RunE: func(_ *cobra.Command, optional []string) error {
			dir, err := build.DefaultDir()
			if err != nil {
				return err
			}
			if len(optional) > 0 {
				fmt.Println(dir.Optional(optional[0]))
				return nil
			}
			fmt.Println(dir.Bin())
			return nil
		},
	}
}
