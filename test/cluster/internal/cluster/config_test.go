package cluster

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func TestParseGates(t *testing.T) {
	for list, want := range map[string]map[string]bool{
		"":                {},
		"A=true":          {"A": true},
		"A=true,B=false":  {"A": true, "B": false},
		"A=true, B=false": {"A": true, "B": false},
		"AllAlpha=true,":  {"AllAlpha": true},
	} {
		got, err := parseGates(list)
		require.NoError(t, err, list)
		require.Equal(t, want, got, list)
	}
	for _, list := range []string{"A", "A=", "A=yes", "=true", "A=true;B=true"} {
		_, err := parseGates(list)
		require.ErrorContains(t, err, "NAME=true", list)
	}
}

// TestKubeletConfig reads the configuration as the kubelet does: a key that it
// does not know is an error.
func TestKubeletConfig(t *testing.T) {
	text := kubeletConfig(kubeletSettings{
		authority: "/a b/ca.crt", certificate: "/a b/n.crt", key: "/a b/n.key",
		cgroup: "/tranche-1/node-a", resolvConf: "/a b/resolv.conf",
		gates: map[string]bool{"B": false, "A": true},
	})
	var config kubeletv1beta1.KubeletConfiguration
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &config), text)
	require.Equal(t, "/a b/ca.crt", config.Authentication.X509.ClientCAFile)
	require.False(t, *config.Authentication.Anonymous.Enabled)
	require.Equal(t, "/tranche-1/node-a", config.CgroupRoot)
	require.Equal(t, "/a b/resolv.conf", *config.ResolverConfig)
	require.Equal(t, map[string]bool{"A": true, "B": false}, config.FeatureGates)
	require.Equal(t, "0%", config.EvictionHard["nodefs.available"])
	require.Equal(t, "unix:///run/containerd/containerd.sock", config.ContainerRuntimeEndpoint)

	require.NotContains(t, kubeletConfig(kubeletSettings{}), "featureGates", "the release's own, unless asked")
}

func TestCNIConfig(t *testing.T) {
	var config struct {
		Plugins []struct {
			Type   string
			IPMasq bool
			IPAM   struct {
				Ranges [][]struct{ Subnet string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(cniConfig("10.89.7.0/24")), &config))
	require.Len(t, config.Plugins, 1)
	require.Equal(t, "ptp", config.Plugins[0].Type)
	require.Equal(t, "10.89.7.0/24", config.Plugins[0].IPAM.Ranges[0][0].Subnet)
}

func TestContainerdConfig(t *testing.T) {
	config := containerdConfig("/cache/bin/runc", "native")
	for _, line := range []string{
		`version = 3`, `enable_cdi = true`, `cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]`,
		`restrict_oom_score_adj = true`, `sandbox = "tranche.test/pause:1"`, `BinaryName = "/cache/bin/runc"`,
		`snapshotter = "native"`,
	} {
		require.Contains(t, config, line)
	}
	require.NotContains(t, config, "%!")
}

func TestAddressesOfNodesDiffer(t *testing.T) {
	seen := map[string]bool{apiServerAddress: true, "10.89.0.0/24": true}
	for number := range maxNodes {
		for _, address := range []string{nodeAddress(number), podSubnet(number)} {
			require.False(t, seen[address], address)
			seen[address] = true
		}
	}
}
