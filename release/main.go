package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/release/internal/artifact"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "release", Short: "Make and push what users install", SilenceUsage: true, SilenceErrors: true}
	cmd.AddCommand(newImageCommand(), newRootCommand(), newDistCommand(), newPushCommand(), newRegistryCommand())
	return cmd
}

// The licences of what programs contain are found by the go command, from the repository that they were built in.
const sourcesUsage = "folder of the repository"

func newImageCommand() *cobra.Command {
	var name, programs, tag, out, repository string
	cmd := &cobra.Command{
		Use:   "image --programs FOLDER --tag NAME --out FILE",
		Short: "Write an image of this machine's architecture as `docker save` does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sources(repository).writeImage(cmd.Context(), name, programs, tag, out)
		},
	}
	cmd.Flags().StringVar(&name, "image", "", "simulated-driver; empty: the product's image")
	cmd.Flags().StringVar(&programs, "programs", "bin", "folder of the programs")
	cmd.Flags().StringVar(&tag, "tag", "", "complete name of the image")
	cmd.Flags().StringVar(&out, "out", "", "file to write")
	cmd.Flags().StringVar(&repository, "sources", ".", sourcesUsage)
	return cmd
}

func newRootCommand() *cobra.Command {
	var programs, architecture, out, repository string
	cmd := &cobra.Command{
		Use:   "root --programs FOLDER --architecture NAME --out FILE",
		Short: "Write the files of the product's image as a tar archive, for a Dockerfile",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sources(repository).writeRoot(cmd.Context(), programs, architecture, out)
		},
	}
	cmd.Flags().StringVar(&programs, "programs", "bin", "folder of the programs")
	cmd.Flags().StringVar(&architecture, "architecture", "amd64", "amd64 or arm64")
	cmd.Flags().StringVar(&out, "out", "", "file to write")
	cmd.Flags().StringVar(&repository, "sources", ".", sourcesUsage)
	return cmd
}

func newDistCommand() *cobra.Command {
	var d dist
	cmd := &cobra.Command{
		Use:   "dist --programs FOLDER --chart FOLDER --out FOLDER",
		Short: "Write everything that a release consists of",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return d.write(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&d.programs, "programs", "build/release", "folder with a folder OS-ARCHITECTURE of programs for each platform")
	flags.StringVar(&d.chart, "chart", "deployments/helm/tranche", "folder of the chart")
	flags.StringVar((*string)(&d.sources), "sources", ".", sourcesUsage)
	flags.StringVar(&d.repository, "repository", "", "name of the image, without a tag")
	flags.StringVar(&d.revision, "revision", "", "commit that the programs are built from")
	flags.StringVar(&d.out, "out", "dist", "folder to write")
	return cmd
}

func newPushCommand() *cobra.Command {
	var folder, chart, registry, sboms string
	cmd := &cobra.Command{
		Use:   "push --registry NAME",
		Short: "Push images and chart of dist/, and print their names with digests",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of, err := artifact.ReadChart(chart)
			if err != nil {
				return err
			}
			pushed, err := artifact.Push(cmd.Context(), registry, chartFile(folder, of), imageFiles(folder, of))
			if err != nil {
				return err
			}
			for _, one := range pushed {
				fmt.Fprintln(cmd.OutOrStdout(), one.Reference)
			}
			if sboms == "" {
				return nil
			}
			return os.WriteFile(sboms, []byte(sbomsOf(pushed, imageFiles(folder, of))), 0o644) //nolint:gosec // public
		},
	}
	cmd.Flags().StringVar(&folder, "dist", "dist", "folder that `release dist` has written")
	cmd.Flags().StringVar(&chart, "chart", "deployments/helm/tranche", "folder of the chart")
	cmd.Flags().StringVar(&sboms, "sboms", "", "file to write: a line for each image of one architecture, and the path of its SBOM")
	cmd.Flags().StringVar(&registry, "registry", "", "registry and path, such as ghcr.io/tranche-dev")
	_ = cmd.MarkFlagRequired("registry")
	return cmd
}
