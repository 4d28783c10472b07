package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// Patience is how long the program waits for the plugin, which may be starting.
	Patience = 15 * time.Second
	// RuntimePatience is after which time the runtime ends the program.
	RuntimePatience = 20 * time.Second
	// retryInterval is how often it looks for the plugin.
	retryInterval = 100 * time.Millisecond
)

// Args returns the arguments of the program, its name included. folder is that of the plugin.
func Args(folder, claim, device string) []string {
	return []string{Program, "--dir=" + folder, "--claim=" + claim, "--device=" + device}
}

// Run is the program. proc is the host's /proc.
func Run(ctx context.Context, args []string, state io.Reader, proc string) error {
	var r Request
	var dir string
	flags := flag.NewFlagSet(Program, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&dir, "dir", "", "folder of the plugin")
	flags.StringVar(&r.Claim, "claim", "", "UID of the claim")
	flags.StringVar(&r.Device, "device", "", "device of the claim")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pid, err := processOf(state)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return fmt.Errorf("find the container's control group: %w", err)
	}
	if r.Group, err = groupIn(content); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	return ask(ctx, dir, r)
}

// ask asks a plugin in the folder until one answers.
func ask(ctx context.Context, dir string, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		err := askAny(ctx, dir, r)
		if refused := (*refusedError)(nil); err == nil || errors.As(err, &refused) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the memory of the GPU share of claim %s cannot be limited, because Tranche's kubelet plugin does not answer on this node: %w; the container starts when the plugin runs", r.Claim, err)
		case <-time.After(retryInterval):
		}
	}
}

func askAny(ctx context.Context, dir string, r Request) error {
	found, err := filepath.Glob(Sockets(dir))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no %s", Sockets(dir))
	}
	var errs []error
	for _, socket := range found {
		err := askAt(ctx, socket, r)
		if refused := (*refusedError)(nil); err == nil || errors.As(err, &refused) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// refusedError is the answer of a plugin that could not limit the memory.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

func askAt(ctx context.Context, socket string, r Request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://plugin/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
	return &refusedError{strings.TrimSpace(string(reason))}
}

// maxReason is the maximum length of a plugin's reason, in bytes.
const maxReason = 4 << 10
