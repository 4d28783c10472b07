package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/report"
)

const (
	// reportSockets match the sockets at which plugins tell what the hardware
	// says. A plugin's own is named for its pod, since two may be at work.
	reportSockets = "report-*.sock"
	// reportTimeout is how long the hardware may take to answer.
	reportTimeout = 30 * time.Second
	jsonType      = "application/json"
)

// serveReport answers `tranche-kubelet-plugin hardware` until ctx ends. It is a
// socket that only root on the node reaches, because the report names processes.
func (p *plugin) serveReport(ctx context.Context) error {
	path := filepath.Join(p.DataDir(), "report-"+cmp.Or(string(p.PodUID), strconv.Itoa(os.Getpid()))+".sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("make room for the report's socket: %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen for requests for the report: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("keep others from the report's socket: %w", err), listener.Close())
	}
	server := &http.Server{Handler: http.HandlerFunc(p.answerReport), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "The report is not served any more")
		}
	}()
	return nil
}

func (p *plugin) answerReport(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), reportTimeout)
	defer cancel()
	told, err := p.hardware.Report(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	p.annotate(&told)
	write := told.WriteText
	if r.Header.Get("Accept") == jsonType {
		w.Header().Set("Content-Type", jsonType)
		write = told.WriteJSON
	}
	if err := write(w); err != nil {
		klog.FromContext(ctx).Error(err, "The report could not be sent")
	}
}

// annotate says whose each partition is, and why a GPU is out of service.
func (p *plugin) annotate(r *report.Report) {
	holders := p.holders("")
	problems := map[string]string{}
	for _, c := range p.gpus.list() {
		problems[c.Name()] = c.problem
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		obstacles := p.publisher.obstaclesOn(g.PCIAddress)
		for _, o := range byReason(obstacles) {
			g.Obstacles = append(g.Obstacles, "not to be had now: "+shortNames(g.Name, devicesOf(obstacles, o))+": "+o.Reason)
		}
		g.Note = ofDeviceOrShares(holders, g.Name)
		if problem := problems[g.Name]; problem != "" && g.Unhealthy == "" {
			g.Unhealthy = problem
		}
		for j := range g.Partitions {
			part := &g.Partitions[j]
			part.Note = ofDeviceOrShares(holders, part.Name)
			if part.Note == "" && !part.Type.FollowsMode() {
				part.Note = "not made by Tranche: " + p.hardware.RemovalCommand(part.Partition(g.PCIAddress))
			}
		}
	}
}

// ofDeviceOrShares names who holds a device, or shares of it.
func ofDeviceOrShares(holders map[string]string, device string) string {
	var all []string
	for _, name := range append([]string{device}, sharesOf(device)...) {
		if who := holders[name]; who != "" {
			all = append(all, who)
		}
	}
	return strings.Join(all, "; ")
}

// sharesOf names the shares that a device can have.
func sharesOf(device string) []string {
	var names []string
	for _, by := range gpu.Bases() {
		names = append(names, gpu.ShareName(device, by))
	}
	return names
}

// PrintHardware asks the plugin of this node what the hardware says and prints
// it. It is for a shell in the plugin's pod.
func PrintHardware(ctx context.Context, c *Config, out io.Writer, asJSON bool) error {
	sockets, err := filepath.Glob(filepath.Join(c.DataDir(), reportSockets))
	if err != nil {
		return fmt.Errorf("look for the plugin: %w", err)
	}
	var errs []error
	for _, socket := range sockets {
		err := printFrom(ctx, socket, out, asJSON)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return fmt.Errorf("no plugin with GPUs is at work on this node (no %s in %s); if the kubelet's folder is another one, name it with --kubelet-dir", reportSockets, c.DataDir())
	}
	return errors.Join(errs...)
}

func printFrom(ctx context.Context, socket string, out io.Writer, asJSON bool) error {
	client := &http.Client{Timeout: reportTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://plugin/", http.NoBody)
	if err != nil {
		return err
	}
	if asJSON {
		request.Header.Set("Accept", jsonType)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the plugin: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("the plugin cannot tell: %s", reason)
	}
	_, err = io.Copy(out, response.Body)
	return err
}
