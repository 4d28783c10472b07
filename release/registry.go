package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/spf13/cobra"
)

func newRegistryCommand() *cobra.Command {
	var listen, folder string
	cmd := &cobra.Command{
		Use:   "registry --listen ADDRESS",
		Short: "Serve an empty registry, to try a release",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), listen, folder) },
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:5000", "address and port")
	cmd.Flags().StringVar(&folder, "dir", "", "folder for blobs; empty: they are kept in memory")
	return cmd
}

// serve answers until the context ends. There are no passwords: an address other than
// the loopback is open to all who reach it.
func serve(ctx context.Context, address, folder string) error {
	blobs := registry.NewInMemoryBlobHandler()
	if folder != "" {
		blobs = registry.NewDiskBlobHandler(folder)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "registry at", listener.Addr())
	server := &http.Server{
		Handler:           registry.New(registry.WithBlobHandler(blobs), registry.Logger(log.New(os.Stderr, "", 0))),
		ReadHeaderTimeout: time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
