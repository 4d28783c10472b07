package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim"
)

const (
	// reportSockets match the sockets at which plugins serve the report. A plugin's own
	// is named for its pod, since two may be at work.
	reportSockets = "report-*.sock"
	// reportTimeout is how long the hardware may take to answer.
	reportTimeout = 30 * time.Second
	jsonType      = "application/json"
)

// serveReport answers `tranche-kubelet-plugin hardware` until ctx ends. It is a
// socket that only root on the node reaches, because the report names claims and processes.
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
	report := p.hardwareReport(ctx)
	write := report.writeText
	if r.Header.Get("Accept") == jsonType {
		w.Header().Set("Content-Type", jsonType)
		write = func(w io.Writer) error { return json.NewEncoder(w).Encode(report) }
	}
	if err := write(w); err != nil {
		klog.FromContext(ctx).Error(err, "The report could not be sent")
	}
}

// hardwareReport is what the vendors' tools cannot tell of the node's GPUs.
type hardwareReport struct {
	GPUs []gpuReport `json:"gpus"`
}

type gpuReport struct {
	// Name is the name of the GPU's device ("gpu-0000-1b-00-0").
	Name string `json:"name"`
	// Problem says what is wrong with the GPU, empty for a healthy one.
	Problem string `json:"problem,omitempty"`
	// Obstacles say what cannot be allocated now, and why: mostly a mode that a process
	// keeps the GPU from changing.
	Obstacles []string `json:"obstacles,omitempty"`
	// Devices lists what somebody holds of the GPU, once for each holder.
	Devices []deviceReport `json:"devices,omitempty"`
	// Errors say what could not be read.
	Errors []string `json:"errors,omitempty"`
}

type deviceReport struct {
	Name string `json:"name"`
	UUID string `json:"uuid,omitempty"`
	// Owner is the claim with its pods, or says that Tranche did not make the partition.
	Owner string `json:"owner"`
}

// hardwareReport asks the hardware now, since a person may just have changed it.
func (p *plugin) hardwareReport(ctx context.Context) hardwareReport {
	held := map[string][]deviceReport{}
	for _, r := range claim.InUse(p.claims.Ledger.List()) {
		for _, d := range r.Devices {
			held[d.Placement.GPU] = append(held[d.Placement.GPU], deviceReport{Name: d.Name, UUID: d.UUID, Owner: nameOf(&r) + p.partOf(r.Claim, d)})
		}
	}
	gpus := p.gpus.List()
	report := hardwareReport{GPUs: make([]gpuReport, len(gpus))}
	var wg sync.WaitGroup
	for i, g := range gpus {
		report.GPUs[i] = gpuReport{Name: g.Name(), Problem: g.Problem, Devices: held[g.PCIAddress]}
		wg.Go(func() { p.ask(ctx, g.PCIAddress, &report.GPUs[i]) })
	}
	wg.Wait()
	return report
}

// ask adds to a GPU's report what only the hardware knows.
func (p *plugin) ask(ctx context.Context, pciAddress string, g *gpuReport) {
	obstacles, err := p.obstaclesOf(ctx, pciAddress)
	if err != nil {
		g.Errors = append(g.Errors, err.Error())
	}
	for _, o := range byReason(obstacles) {
		g.Obstacles = append(g.Obstacles, shortNames(g.Name, devicesOf(obstacles, o))+": "+o.Reason)
	}
	foreign, _, err := p.claims.Compare(ctx, pciAddress)
	if err != nil {
		g.Errors = append(g.Errors, err.Error())
	}
	for _, f := range foreign {
		g.Devices = append(g.Devices, deviceReport{Name: f.Name(), UUID: f.UUID, Owner: "not made by Tranche: " + p.hardware.RemovalCommand(f)})
	}
	slices.SortStableFunc(g.Devices, func(a, b deviceReport) int { return strings.Compare(a.Name, b.Name) })
}

func (r hardwareReport) writeText(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, g := range r.GPUs {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s\n", g.Name, cmp.Or(g.Problem, "healthy"))
		for _, o := range g.Obstacles {
			fmt.Fprintf(out, "  cannot be allocated now: %s\n", o)
		}
		for _, err := range g.Errors {
			fmt.Fprintf(out, "  cannot be read: %s\n", err)
		}
		if len(g.Devices) > 0 {
			fmt.Fprintln(out, "  DEVICE\tUUID\tOWNER")
		}
		for _, d := range g.Devices {
			fmt.Fprintf(out, "  %s\t%s\t%s\n", d.Name, cmp.Or(d.UUID, "-"), d.Owner)
		}
	}
	return out.Flush()
}

// PrintHardware prints who owns the GPUs of this node and their partitions, and what
// cannot be allocated now. It asks the plugin, for a shell in the plugin's pod.
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
