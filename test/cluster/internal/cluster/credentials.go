package cluster

import (
	"encoding/base64"
	"fmt"
	"os"
)

// writeCredentials makes the certificates and kubeconfig files of the cluster.
func (c *Cluster) writeCredentials() error {
	authority, err := newAuthority(c.path("pki"))
	if err != nil {
		return fmt.Errorf("make the certificate authority: %w", err)
	}
	if err := authority.issueKeyPair("service-accounts"); err != nil {
		return fmt.Errorf("make the key of service accounts: %w", err)
	}
	for name, subject := range c.subjects() {
		if err := authority.issue(name, subject); err != nil {
			return err
		}
	}
	for _, user := range []string{"kube-scheduler", "kube-controller-manager"} {
		if err := c.writeKubeconfig(c.path("pki", user+".kubeconfig"), user, apiServerURL()); err != nil {
			return err
		}
	}
	for _, node := range c.settings.Nodes {
		if err := c.writeKubeconfig(c.path("pki", node+".kubeconfig"), node, apiServerURL()); err != nil {
			return err
		}
	}
	return c.writeKubeconfig(c.Kubeconfig(), "admin", fmt.Sprintf("https://127.0.0.1:%d", c.settings.Port))
}

// subjects are all holders of certificates, by file name.
func (c *Cluster) subjects() map[string]subject {
	subjects := map[string]subject{
		"kube-apiserver": {
			name:      "kube-apiserver",
			hosts:     []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			addresses: []string{"127.0.0.1", apiServerAddress, serviceAddress},
		},
		"kubelet-client":          {name: "kube-apiserver-kubelet-client", group: "system:masters"},
		frontProxy:                {name: frontProxy},
		"admin":                   {name: "admin", group: "system:masters"},
		"kube-scheduler":          {name: "system:kube-scheduler"},
		"kube-controller-manager": {name: "system:kube-controller-manager"},
	}
	for number, node := range c.settings.Nodes {
		subjects[node] = subject{
			name: "system:node:" + node, group: "system:nodes",
			hosts: []string{node}, addresses: []string{nodeAddress(number), "127.0.0.1"},
		}
	}
	return subjects
}

// writeKubeconfig writes a kubeconfig that holds all it needs, so that it may
// be copied.
func (c *Cluster) writeKubeconfig(file, user, server string) error {
	encoded := map[string]string{}
	for _, part := range []string{"ca.crt", user + ".crt", user + ".key"} {
		content, err := os.ReadFile(c.path("pki", part))
		if err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
		encoded[part] = base64.StdEncoding.EncodeToString(content)
	}
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: tranche
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %[3]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: tranche
  context:
    cluster: tranche
    user: %[3]s
current-context: tranche
`, server, encoded["ca.crt"], user, encoded[user+".crt"], encoded[user+".key"])
	return os.WriteFile(file, []byte(content), 0o600)
}
