package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestCredentials(t *testing.T) {
	cluster, err := Open(t.TempDir(), t.Logf)
	require.NoError(t, err)
	cluster.settings.Nodes = []string{"node-a", "node-b"}
	cluster.settings.Port = 12345
	require.NoError(t, cluster.writeCredentials())

	authority, err := os.ReadFile(cluster.path("pki", "ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	leaf := func(name string) *x509.Certificate {
		pair, err := tls.LoadX509KeyPair(cluster.path("pki", name+".crt"), cluster.path("pki", name+".key"))
		require.NoError(t, err)
		cert, err := x509.ParseCertificate(pair.Certificate[0])
		require.NoError(t, err)
		return cert
	}
	for server, hosts := range map[string][]string{
		"kube-apiserver": {"127.0.0.1", "10.89.0.1", "10.96.0.1", "kubernetes.default.svc"},
		"node-a":         {"10.89.0.11", "node-a"},
		"node-b":         {"10.89.0.12", "node-b"},
	} {
		for _, host := range hosts {
			_, err := leaf(server).Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
			require.NoError(t, err, "%s as %s", server, host)
		}
	}
	require.Equal(t, "system:node:node-b", leaf("node-b").Subject.CommonName)
	require.Equal(t, []string{"system:nodes"}, leaf("node-b").Subject.Organization)
	require.Equal(t, []string{"system:masters"}, leaf("admin").Subject.Organization)

	for file, server := range map[string]string{
		cluster.Kubeconfig():                         "https://127.0.0.1:12345",
		cluster.path("pki", "node-a.kubeconfig"):     "https://10.89.0.1:6443",
		cluster.path("pki", scheduler+".kubeconfig"): "https://10.89.0.1:6443",
	} {
		checkKubeconfig(t, file, server, authority)
	}
}

func checkKubeconfig(t *testing.T, file, server string, authority []byte) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var config struct {
		CurrentContext string `json:"current-context"`
		Clusters       []struct {
			Cluster struct {
				Server    string `json:"server"`
				Authority string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User map[string]string `json:"user"`
		} `json:"users"`
	}
	require.NoError(t, yaml.Unmarshal(content, &config))
	require.Equal(t, "tranche", config.CurrentContext)
	require.Equal(t, server, config.Clusters[0].Cluster.Server)
	decoded, err := base64.StdEncoding.DecodeString(config.Clusters[0].Cluster.Authority)
	require.NoError(t, err)
	require.Equal(t, authority, decoded)
	require.Len(t, config.Users[0].User, 2)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, "-rw-------", fmt.Sprint(info.Mode()), "%s holds a key", filepath.Base(file))
}
