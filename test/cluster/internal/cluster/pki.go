package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// subject is who a certificate is for. Kubernetes reads name and group as user
// and group; addresses and hosts are where a server answers.
type subject struct {
	name, group string
	hosts       []string
	addresses   []string
}

// newAuthority makes a certificate authority and writes it to dir/ca.{crt,key}.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(subject{name: "tranche-test-cluster"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	authority := &authority{dir: dir, cert: cert, key: key}
	return authority, authority.write("ca", der, key)
}

// issue writes a certificate and its key to NAME.crt and NAME.key.
func (a *authority) issue(name string, subject subject) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate(subject), a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	return a.write(name, der, key)
}

// issueKeyPair writes a key pair without a certificate to NAME.key and NAME.pub.
func (a *authority) issueKeyPair(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := a.writePEM(name+".pub", "PUBLIC KEY", public); err != nil {
		return err
	}
	return a.writeKey(name, key)
}

func (a *authority) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	if err := a.writePEM(name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return a.writeKey(name, key)
}

func (a *authority) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return a.writePEM(name+".key", "EC PRIVATE KEY", der)
}

func (a *authority) writePEM(file, kind string, der []byte) error {
	block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(filepath.Join(a.dir, file), block, 0o600)
}

func certificate(subject subject) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: subject.name},
		DNSNames:     subject.hosts,
		NotBefore:    time.Now().Add(-time.Hour), // clocks are set back sometimes
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if subject.group != "" {
		template.Subject.Organization = []string{subject.group}
	}
	for _, address := range subject.addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	return template
}
