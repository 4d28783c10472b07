package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// patience is how long the plugin may take for anything.
const patience = 30 * time.Second

// host is a node for the plugin's program: its folders, simulated GPUs and an
// API server.
type host struct {
	programs
	dir string
	api *apiServer
}

// newHost makes the node.
func (b *bench) newHost(ctx context.Context) (*host, error) {
	for _, program := range []string{b.plugin, b.hook, b.driver, b.libraries} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("find what is measured (make build simulated-driver makes it): %w", err)
		}
	}
	dir, err := os.MkdirTemp(b.dir, "host")
	if err != nil {
		return nil, err
	}
	h := &host{programs: b.programs, dir: dir}
	if err := os.MkdirAll(h.path("kubelet/plugins_registry"), 0o750); err != nil {
		return nil, err
	}
	h.api = startAPIServer()
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "9f0c0ed8-30ab-4a4b-9a4b-000000000000"},
	}
	return h, errors.Join(h.api.put("/api/v1/nodes", node), h.api.writeKubeconfig(h.path("kubeconfig")), h.installDriver(ctx))
}

// installDriver makes the simulated machine.
func (h *host) installDriver(ctx context.Context) error {
	served := []string{"--root=" + h.simulation(), "--instance=bench"}
	driver := exec.CommandContext(ctx, h.driver, append(served, "--node-name="+nodeName, "--inventory="+pluginInventory, "--libraries="+h.libraries)...)
	driver.Stderr, driver.SysProcAttr = os.Stderr, controlplane.EndWithThis()
	if err := driver.Start(); err != nil {
		return err
	}
	go driver.Wait() //nolint:errcheck // it runs as long as this program, or is not ready
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return exec.CommandContext(ctx, h.driver, append(served, "ready")...).Run() == nil, nil
	})
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

// dataDir is the plugin's folder, simulation is that of the simulated machine, and
// mpsDir that of the MPS daemons.
func (h *host) dataDir() string    { return h.path("kubelet/plugins/" + names.DriverName) }
func (h *host) simulation() string { return h.path("sim") }
func (h *host) mpsDir() string     { return h.path("mps") }

// daemons sees the MPS daemons that the program runs.
func (h *host) daemons() *mps.Supervisor {
	return mps.New(mps.Config{Dir: h.mpsDir(), DriverRoot: h.simulation() + "/driver"})
}

// process is one run of the program.
type process struct {
	*kubelet
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

// start runs the program and registers it as the kubelet does.
func (h *host) start(ctx context.Context) (*process, error) {
	p := &process{log: h.path("log"), exited: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(ctx, h.plugin,
		"--node-name="+nodeName,
		"--kubeconfig="+h.path("kubeconfig"),
		"--kubelet-dir="+h.path("kubelet"),
		"--cdi-dir="+h.path("cdi"),
		"--cdi-hook="+h.hook,
		"--host-root=/",
		"--http-address=127.0.0.1:0",
		"--machine-root="+h.simulation(),
		"--mps-dir="+h.mpsDir(),
	)
	p.cmd.Stderr, p.cmd.SysProcAttr = log, controlplane.EndWithThis()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	if err := p.register(ctx, filepath.Join(h.path("kubelet/plugins_registry"), names.DriverName+"-reg.sock")); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *process) register(ctx context.Context, socket string) error {
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // said all there is to say
	registration := registerapi.NewRegistrationClient(conn)
	var info *registerapi.PluginInfo
	err = p.await(ctx, "answer the kubelet", func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		info, err = registration.GetInfo(ctx, &registerapi.InfoRequest{})
		return err == nil
	})
	if err != nil {
		return err
	}
	if p.kubelet, err = dialPlugin(info.Endpoint); err != nil {
		return err
	}
	_, err = registration.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true})
	return err
}

// await waits for something that the plugin should do.
func (p *process) await(ctx context.Context, what string, done func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		select {
		case <-p.exited:
			return false, errors.New("it has ended")
		default:
			return done(), nil
		}
	})
	if err != nil {
		return fmt.Errorf("the plugin does not %s: %w: %s", what, err, p.lastWords())
	}
	return nil
}

// lastWords is the last line of the program's log.
func (p *process) lastWords() string {
	data, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// stop ends the program as the kubelet does.
func (p *process) stop() error {
	if p.kubelet != nil {
		_ = p.conn.Close()
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		return errors.New("the plugin does not end")
	}
}

// memory reads what the program has in memory, in bytes by the kernel's names.
func (p *process) memory() (map[string]float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	sizes := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[2] == "kB" {
			if n, err := strconv.Atoi(fields[1]); err == nil {
				sizes[strings.TrimSuffix(fields[0], ":")] = float64(n) * 1024
			}
		}
	}
	return sizes, nil
}
