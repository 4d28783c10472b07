package cluster

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tranche-dev/tranche/test/cluster/internal/build"
	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

// Names of a node's processes.
const (
	containerd = "containerd"
	kubelet    = "kubelet"
)

const containerdSocket = "/run/containerd/containerd.sock"

// persistent are the folders of a node that live through its reboot. They are
// on the host's disk, below the node's own folder; all else that a node writes
// is in memory.
var persistent = []string{
	"/etc/cdi", "/etc/cni", "/etc/containerd",
	"/opt/cni",
	"/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/tranche",
	"/var/log/containers", "/var/log/pods",
}

// kernelSettings are settings of the kernel that a kubelet changes where they
// are not so. The nodes see them as the kubelet wants them; the host, whose
// kernel it is, keeps its own.
var kernelSettings = map[string]string{
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
}

// node is one node of the cluster.
type node struct {
	name    string
	number  int
	dir     string
	cluster *Cluster
}

func (c *Cluster) node(name string) (node, error) {
	number := slices.Index(c.settings.Nodes, name)
	if number < 0 {
		return node{}, fmt.Errorf("the cluster has no node %q", name)
	}
	return node{name: name, number: number, dir: c.path("machines", name), cluster: c}, nil
}

// root is where the node's own files lie on the host: those at PATH in
// root/PATH.
func (n node) root(path string) string { return filepath.Join(n.dir, "root", path) }

func (n node) processName(process string) string { return n.name + "-" + process }

// spec is the node's machine: the host's files, with folders of its own where
// Kubernetes writes. boot is the identity of this boot.
func (n node) spec(boot string) machine.Spec {
	spec := machine.Spec{
		Name: n.name,
		Dir:  n.dir,
		// The whole parents are made writable, so that a folder like
		// /var/lib/kubelet need not be made on the host to be mounted upon.
		Overlays: []string{"/etc", "/opt", "/var/lib", "/var/log"},
		Tmpfs:    []string{"/run"},
		Keep:     []string{n.cluster.dir, string(n.cluster.settings.Parts)},
		Files:    map[string]string{"/proc/sys/kernel/random/boot_id": boot + "\n"},
	}
	for file, content := range kernelSettings {
		spec.Files[file] = content + "\n"
	}
	for _, folder := range persistent {
		spec.Binds = append(spec.Binds, machine.Bind{Source: n.root(folder), Target: folder})
	}
	spec.Binds = append(spec.Binds, machine.Bind{Source: n.cluster.settings.Parts.CNI(), Target: "/opt/cni/bin", ReadOnly: true})
	return spec
}

// writeFiles makes the node's folders and configuration files.
func (n node) writeFiles() error {
	for _, folder := range append(persistent, "/etc/cni/net.d", "/opt/cni/bin") {
		if err := os.MkdirAll(n.root(folder), 0o755); err != nil {
			return fmt.Errorf("make the folders of node %s: %w", n.name, err)
		}
	}
	gates, err := parseGates(n.cluster.settings.Gates)
	if err != nil {
		return err
	}
	for file, content := range map[string]string{
		n.root("/etc/cni/net.d/10-tranche.conflist"): cniConfig(podSubnet(n.number)),
		n.root("/etc/containerd/config.toml"):        containerdConfig(n.cluster.settings.Parts.Program("runc"), n.snapshotter()),
		n.file("resolv.conf"):                        "nameserver " + dnsAddress + "\n",
		n.file("kubelet.yaml"): kubeletConfig(kubeletSettings{
			authority:   n.cluster.path("pki", "ca.crt"),
			certificate: n.cluster.path("pki", n.name+".crt"),
			key:         n.cluster.path("pki", n.name+".key"),
			cgroup:      n.cluster.nodeCgroup(n.name),
			resolvConf:  n.file("resolv.conf"),
			gates:       gates,
		}),
	} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the configuration of node %s: %w", n.name, err)
		}
	}
	return nil
}

func (n node) file(name string) string { return filepath.Join(n.dir, name) }

func (n node) containerdProcess() machine.Process {
	return n.cluster.process(n.processName(containerd), containerd, "--config=/etc/containerd/config.toml")
}

func (n node) kubeletProcess() machine.Process {
	return n.cluster.process(n.processName(kubelet), kubelet,
		"--config="+n.file("kubelet.yaml"),
		"--kubeconfig="+n.cluster.path("pki", n.name+".kubeconfig"),
		"--hostname-override="+n.name,
		"--node-ip="+nodeAddress(n.number),
		"--v=2",
	)
}

func (n node) link() machine.Link {
	return machine.Link{Device: fmt.Sprintf("node%d", n.number), Router: apiServerAddress, Address: nodeAddress(n.number), Subnet: podSubnet(n.number)}
}

// newBootID makes an identity for a boot, in the form of the kernel's.
func newBootID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// pauseImage is what containerd runs as the sandbox of every pod.
const pauseImage = build.PauseImage
