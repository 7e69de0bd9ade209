// A client of Quipu in Go, with the standard library only. docs/CLIENTS.md explains its rules.
//
//	go run . increase visits [KEY]       an increase that counts once, however often it is sent
//	go run . send 1001 'Hello!' [KEY]    a message that waits until the user's limit admits it
//	go run . badge dave                  the number of unread messages, live
//
// QUIPU_SERVER is the server's address (http://127.0.0.1:8080), QUIPU_API_KEY a key, if it requires one.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	answerTimeout = 10 * time.Second // for one answer; the server gives up after its --deadline, 5 s
	silence       = 45 * time.Second // a stream without a line for three heartbeats is dead
)

var (
	errRefused = errors.New("refused")         // the server says no, and would say no again; nothing was changed
	errGaveUp  = errors.New("gave up")         // the server could not do it in time; nothing was changed
	errUnknown = errors.New("outcome unknown") // it may have happened; retrying later with the same key resolves it

	retried   = map[int]bool{408: true, 429: true, 502: true, 503: true, 504: true}
	unchanged = map[string]bool{"OVERLOADED": true, "STORE_UNAVAILABLE": true, "BUS_UNAVAILABLE": true,
		"RATE_LIMIT_EXCEEDED": true, "REQUEST_TIMEOUT": true}
)

// answer holds the members of all answers that this program reads.
type answer struct {
	Value     int64  `json:"value"`
	MessageID string `json:"messageId"`
	Count     int64  `json:"count"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
}

func newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	server := os.Getenv("QUIPU_SERVER")
	if server == "" {
		server = "http://127.0.0.1:8080"
	}
	request, err := http.NewRequestWithContext(ctx, method, server+path, body)
	if err == nil && os.Getenv("QUIPU_API_KEY") != "" {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("QUIPU_API_KEY"))
	}
	return request, err
}

// post makes one attempt. The status is 0 if no answer came, or only a part of it.
func post(path string, body []byte, key string) (status int, retryAfter time.Duration, told answer) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	request, err := newRequest(ctx, "POST", path, bytes.NewReader(body))
	if err != nil {
		return 0, 0, told
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, told
	}
	defer response.Body.Close()
	err = json.NewDecoder(response.Body).Decode(&told)
	if err != nil && response.StatusCode < 300 {
		return 0, 0, told
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return response.StatusCode, time.Duration(seconds) * time.Second, told
}

// change sends a change until it is answered for good. Every attempt carries the same key, so only one takes effect.
func change(path string, body any, key string, patience time.Duration) (answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	deadline := time.Now().Add(patience)
	mayHaveHappened := false
	for backoff := 200 * time.Millisecond; ; backoff = min(2*backoff, 5*time.Second) {
		status, retryAfter, told := post(path, text, key)
		if status >= 200 && status < 300 {
			return told, nil
		}
		if status != 0 && !retried[status] {
			refusal := errRefused
			if mayHaveHappened && (status == 401 || status == 403) {
				refusal = errUnknown // the server looks at the key only of callers it knows
			}
			return told, fmt.Errorf("%w: %d %s: %s; key %s", refusal, status, told.Code, told.Detail, key)
		}
		if !unchanged[told.Code] { // no answer, OUTCOME_UNKNOWN, or a proxy's error
			mayHaveHappened = true
		}
		pause := retryAfter + time.Duration(mathrand.Int63n(int64(backoff)))
		if time.Now().Add(pause).After(deadline) {
			if mayHaveHappened {
				return told, fmt.Errorf("%w: %d %s; key %s", errUnknown, status, told.Code, key)
			}
			return told, fmt.Errorf("%w: %d %s; key %s", errGaveUp, status, told.Code, key)
		}
		time.Sleep(pause)
	}
}

func min(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func increase(item, key string) (int64, error) {
	path := "/api/v1/counts/" + url.PathEscape(item) + "/increase"
	told, err := change(path, map[string]int{"amount": 1}, key, time.Minute)
	return told.Value, err
}

// send waits for the user's next window if this one is used up: 429 says in Retry-After how long that takes.
func send(user, message, key string) (string, error) {
	told, err := change("/api/send", map[string]string{"userId": user, "message": message}, key, 3*time.Minute)
	return told.MessageID, err
}

// stream is where the next connection of a badge goes on.
type stream struct {
	path, lastID string
	retry        time.Duration
}

// follow shows the events of one connection until it is lost, or nothing comes for `silence`.
func (s *stream) follow(show func(count int64)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	request, err := newRequest(ctx, "GET", s.path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "text/event-stream")
	if s.lastID != "" {
		request.Header.Set("Last-Event-ID", s.lastID)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 && !retried[response.StatusCode] {
		return fmt.Errorf("%w: %s", errRefused, response.Status)
	}
	s.read(response.Body, func() { watchdog.Reset(silence) }, show)
	return nil
}

func (s *stream) read(body io.Reader, onLine func(), show func(count int64)) {
	data := ""
	for lines := bufio.NewScanner(body); lines.Scan(); {
		onLine()
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "id":
			s.lastID = value
		case name == "retry":
			if ms, err := strconv.Atoi(value); err == nil {
				s.retry = time.Duration(ms) * time.Millisecond
			}
		case name == "data":
			data = value
		case name == "" && data != "": // only the empty line completes an event: half of one is not shown
			var counter answer
			if json.Unmarshal([]byte(data), &counter) == nil {
				show(counter.Count)
			}
			data = ""
		}
	}
}

// badge follows the stream for ever. After a loss it asks for what is newer than the last event.
func badge(user string, show func(count int64)) error {
	s := stream{path: "/counters/user/" + url.PathEscape(user) + "/stream", retry: 2 * time.Second}
	for {
		if err := s.follow(show); errors.Is(err, errRefused) {
			return err
		}
		time.Sleep(s.retry/2 + time.Duration(mathrand.Int63n(int64(s.retry)+1)))
	}
}

func newKey() string {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", bytes)
}

func run(words []string) error {
	// A job that must survive a restart of this program stores its key before the first attempt.
	words = append(words, newKey())
	switch {
	case len(words) >= 3 && words[0] == "increase":
		value, err := increase(words[1], words[2])
		if err == nil {
			fmt.Println(value)
		}
		return err
	case len(words) >= 4 && words[0] == "send":
		id, err := send(words[1], words[2], words[3])
		if err == nil {
			fmt.Println(id)
		}
		return err
	case len(words) == 3 && words[0] == "badge":
		return badge(words[1], func(count int64) { fmt.Printf("%d unread\n", count) })
	}
	return fmt.Errorf("%w: usage: increase ITEM [KEY] | send USER MESSAGE [KEY] | badge USER", errRefused)
}

func main() {
	mathrand.Seed(time.Now().UnixNano())
	err := run(os.Args[1:])
	switch {
	case errors.Is(err, errUnknown):
		fmt.Fprintln(os.Stderr, "It may have happened; run this again with the key:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "Nothing was changed:", err)
		os.Exit(1)
	}
}
