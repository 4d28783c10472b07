package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// cniConfig is the pod network of a node: a cable from each pod to the node,
// addresses counted up. The addresses in use are kept in /run, so that they
// are free after a reboot as the pods are gone.
func cniConfig(subnet string) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "tranche",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni/networks",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
`, subnet)
}

// containerdConfig differs from containerd's defaults in little: CDI folders,
// the sandbox image that no registry has, and no wish to change the
// out-of-memory scores, which needs a capability that not every root has. The
// kubelet measures containers itself; containerd would, too, each second. NRI
// is off since containerd 2.4.2 crashes with it when a container is stopped
// while its sandbox is being removed.
func containerdConfig(runc, snapshotter string) string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = %q

[plugins.'io.containerd.cri.v1.images']
  snapshotter = %q
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %q

[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  restrict_oom_score_adj = true
  stats_collect_period = "1m"
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = %q
      SystemdCgroup = false

[plugins.'io.containerd.nri.v1.nri']
  disable = true

[plugins.'io.containerd.transfer.v1.local']
  [[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
    platform = "linux"
    snapshotter = %[2]q
`, containerdSocket, snapshotter, pauseImage, runc)
}

// kubeletSettings is what differs between kubelets.
type kubeletSettings struct {
	authority, certificate, key string
	cgroup                      string
	resolvConf                  string
	gates                       map[string]bool
}

// kubeletConfig keeps the kubelet's defaults apart from what a small or shared
// machine needs: old control groups and swap are fine, a full disk is no
// reason to evict pods or to delete images that could not be pulled again.
func kubeletConfig(settings kubeletSettings) string {
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %q}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: %q
evictionHard:
  imagefs.available: "0%%"
  nodefs.available: "0%%"
  nodefs.inodesFree: "0%%"
imageGCHighThresholdPercent: 100
`, settings.authority, settings.certificate, settings.key, containerdSocket, settings.cgroup, dnsAddress, settings.resolvConf)
	if len(settings.gates) > 0 {
		config += "featureGates:\n"
		for _, gate := range slices.Sorted(maps.Keys(settings.gates)) {
			config += fmt.Sprintf("  %s: %t\n", gate, settings.gates[gate])
		}
	}
	return config
}

// parseGates reads feature gates as every component takes them: A=true,B=false.
func parseGates(list string) (map[string]bool, error) {
	gates := map[string]bool{}
	for pair := range strings.SplitSeq(list, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil || name == "" {
			return nil, fmt.Errorf("feature gate %q: it must be NAME=true or NAME=false", pair)
		}
		gates[name] = on
	}
	return gates, nil
}
