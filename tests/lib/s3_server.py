#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An S3 server on loopback that checks every signature itself, with faults, for the tests of blobs and mirrors.

s3_server.py FOLDER [ADDRESS]: keeps everything in memory, writes its port into FOLDER/port. Key AKIDTEST, secret secret/+test, bucket "bucket",
region us-east-1. Read at each request, if they exist:
  FOLDER/faults   lines "METHOD PART FAULT [COUNT]": for requests whose path holds PART (* for any), COUNT times (default 1):
                  code N    cut BYTES (the answer ends early)    slow SECONDS    lost (done, but the connection closes without an answer)
                  range (another range than asked for)    late200 (an error in an answer with code 200)    skew    region    flip (a bit of the body)
                  short BYTES (a whole answer with so many bytes less)    twice (the body again after itself)    gone (there is no such bucket)
                  again (the beginning of a list once more)
  FOLDER/kill     "N PID...": at the N-th request from now on, the processes named are killed, before the request is answered
  FOLDER/asked    one line per request: method path?query bytes range
Also: POST / as STS (web identity), /latest/... as the metadata service of a cloud machine.
"""
import hashlib, hmac, json, os, re, signal, sys, threading, time, urllib.parse
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

folder, lock = sys.argv[1], threading.RLock()
KEY, SECRET, REGION = "AKIDTEST", "secret/+test", "us-east-1"
objects, uploads, used, counts = {}, {}, {}, {"requests": 0, "uploads": 0}

def read(name):
    try:
        return open(os.path.join(folder, name)).read()
    except FileNotFoundError:
        return ""

def fault(method, path):
    with lock:
        for line in read("faults").splitlines():
            words = line.split()
            if len(words) < 3:
                continue
            arguments = 1 if words[2] in ("code", "cut", "slow", "short") else 0
            count = int(words[3 + arguments]) if len(words) > 3 + arguments else 1
            if words[0] in (method, "*") and (words[1] == "*" or words[1] in path) and used.get(line, 0) < count:
                used[line] = used.get(line, 0) + 1
                return words[2:3 + arguments]
    return []

def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()

class Error(Exception):
    def __init__(self, code, name, extra=""):
        self.code, self.name, self.extra = code, name, extra

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, code, body=b"", head=False, cut=None, **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True

    def fail(self, e):
        text = f"<?xml version='1.0'?><Error><Code>{e.name}</Code><Message>a &quot;message&quot;</Message>{e.extra}</Error>"
        self.answer(e.code, text.encode(), head=self.command == "HEAD", Content_Type="application/xml")

    def check_signature(self, path, query, body):
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)",
                             self.headers.get("Authorization", ""))
        if not found:
            raise Error(403, "AccessDenied")
        key, day, region, names, signature = found.groups()
        if key != KEY:
            raise Error(403, "InvalidAccessKeyId")
        if region != REGION:
            raise Error(400, "AuthorizationHeaderMalformed", f"<Region>{REGION}</Region>")
        payload = self.headers["x-amz-content-sha256"]
        if payload != hashlib.sha256(body).hexdigest():
            raise Error(400, "XAmzContentSHA256Mismatch")
        must = {"host", "x-amz-date", "x-amz-content-sha256"} | {n.lower() for n in self.headers if n.lower().startswith("x-amz-")}
        if not must <= set(names.split(";")):
            raise Error(403, "AccessDenied")
        encode = lambda text: urllib.parse.quote(text, safe="-._~")
        pairs = sorted((encode(k), encode(v)) for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
        canonical = "\n".join([self.command, urllib.parse.quote(urllib.parse.unquote(path), safe="/-._~"), "&".join(f"{k}={v}" for k, v in pairs),
                               *(f"{n}:{' '.join(self.headers[n].split())}" for n in names.split(";")), "", names, payload])
        scope = f"{day}/{region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
        chain = mac(mac(mac(mac(("AWS4" + SECRET).encode(), day), region), "s3"), "aws4_request")
        if hmac.new(chain, text.encode(), hashlib.sha256).hexdigest() != signature:
            raise Error(403, "SignatureDoesNotMatch")

    def metadata(self):
        if self.command == "PUT":
            return self.answer(200, b"metadata-token")
        if self.headers.get("X-aws-ec2-metadata-token") != "metadata-token":
            return self.answer(401)
        if self.path.endswith("security-credentials/"):
            return self.answer(200, b"role\n")
        self.answer(200, json.dumps({"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "", "Expiration": "2099-01-01T00:00:00Z"}).encode())

    def sts(self, body):
        asked = dict(urllib.parse.parse_qsl(body.decode()))
        if asked.get("WebIdentityToken") != "web-token" or asked.get("Action") != "AssumeRoleWithWebIdentity":
            return self.fail(Error(400, "InvalidIdentityToken"))
        self.answer(200, f"<R><A><Credentials><AccessKeyId>{KEY}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>a+b/c=</SessionToken>"
                         "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></A></R>".encode())

    def handle_one(self):
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        with lock:
            counts["requests"] += 1
            with open(os.path.join(folder, "asked"), "a") as f:
                f.write(f"{self.command} {self.path} {length} {self.headers.get('Range', '')}\n")
            kill = read("kill").split()
            if kill:
                if kill[0] == "1":
                    os.remove(os.path.join(folder, "kill"))
                    for pid in kill[1:]:
                        try:
                            os.kill(int(pid), signal.SIGKILL)
                        except ProcessLookupError:
                            pass
                    self.close_connection = True
                    return
                with open(os.path.join(folder, "kill"), "w") as f:
                    f.write(" ".join([str(int(kill[0]) - 1)] + kill[1:]))
        if path.startswith("/latest/"):
            return self.metadata()
        if path == "/" and self.command == "POST":
            return self.sts(body)
        now = fault(self.command, self.path)
        try:
            if now[:1] == ["slow"]:
                time.sleep(float(now[1]))
            if now[:1] == ["code"]:
                raise Error(int(now[1]), {"403": "AccessDenied", "503": "SlowDown"}.get(now[1], "InternalError"))
            if now[:1] == ["gone"]:
                raise Error(404, "NoSuchBucket")
            if now[:1] == ["skew"]:
                raise Error(403, "RequestTimeTooSkewed", "<ServerTime>2020-01-01T00:00:00Z</ServerTime>")
            if now[:1] == ["region"]:
                raise Error(301, "PermanentRedirect", "<Region>eu-west-3</Region>")
            if now[:1] == ["late200"]:
                return self.answer(200, b"<Error><Code>InternalError</Code><Message>later</Message></Error>")
            self.check_signature(path, query, body)
            if now[:1] == ["lost"]:
                self.wfile = open(os.devnull, "wb")
                self.close_connection = True
            self.serve(urllib.parse.unquote(path), dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), body, now)
        except Error as e:
            self.fail(e)

    def serve(self, path, query, body, now):
        bucket, _, key = path[1:].partition("/")
        if bucket != "bucket":
            raise Error(404, "NoSuchBucket")
        with lock:
            if not key:
                return self.list_uploads(query) if "uploads" in query else self.list_objects(query, now)
            if "uploads" in query or "uploadId" in query:
                return self.multipart(key, query, body)
            if self.command == "PUT":
                return self.put(key, body)
            if self.command == "DELETE":
                objects.pop(key, None)
                return self.answer(204)
        self.get(key, now)

    def put(self, key, body):
        source = self.headers.get("x-amz-copy-source")
        if source:
            name = urllib.parse.unquote(source)[1:].partition("/")[2]
            if name not in objects:
                raise Error(404, "NoSuchKey")
            objects[key] = objects[name]
            return self.answer(200, b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>")
        if self.headers.get("If-None-Match") == "*" and key in objects:
            raise Error(412, "PreconditionFailed")
        self.keep(key, body, hashlib.md5(body).hexdigest(), self.headers.get("x-amz-meta-sha256"))
        self.answer(200, ETag=objects[key]["etag"])

    def keep(self, key, body, etag, sha256):
        objects[key] = {"body": body, "etag": f'"{etag}"', "time": time.time(), "sha256": sha256}

    def get(self, key, now):
        found = objects.get(key)
        if not found:
            raise Error(404, "NoSuchKey")
        if self.headers.get("If-Match", found["etag"]) != found["etag"]:
            raise Error(412, "PreconditionFailed")
        body, headers = found["body"], {"ETag": found["etag"], "Last_Modified": formatdate(found["time"], usegmt=True)}
        if found["sha256"]:
            headers["x_amz_meta_sha256"] = found["sha256"]
        if self.command == "HEAD":
            return self.answer(200, head=True, Content_Length=str(len(body)), **headers)
        ranged = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        code = 200
        if ranged:
            first, last = int(ranged[1]), min(int(ranged[2]), len(body) - 1)
            if first >= len(body):
                raise Error(416, "InvalidRange")
            if now[:1] == ["range"]:
                first, last = 0, last - first
                headers["Content_Range"] = f"bytes 1-{last + 1}/{len(body)}"
            else:
                headers["Content_Range"] = f"bytes {first}-{last}/{len(body)}"
            body, code = body[first:last + 1], 206
        if now[:1] == ["flip"]:
            body = bytes([body[0] ^ 1]) + body[1:]
        if now[:1] == ["short"]:
            body = body[:-int(now[1])]
        if now[:1] == ["twice"]:
            body += body
        self.answer(code, body, cut=int(now[1]) if now[:1] == ["cut"] else None, **headers)

    def list_objects(self, query, now):
        if now[:1] == ["again"]:
            query = {**query, "continuation-token": ""}
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        encode = lambda text: urllib.parse.quote(text, safe="/-._~") if query.get("encoding-type") else escape(text)
        names, folders = [], set()
        for name in sorted(objects):
            if name.startswith(prefix) and name > query.get("continuation-token", ""):
                rest = name[len(prefix):]
                if delimiter and delimiter in rest:
                    folders.add(prefix + rest.split(delimiter)[0] + delimiter)
                else:
                    names.append(name)
        cut = len(names) > 3 # few, so that lists go on
        shown = names[:3] if cut else names
        text = "".join(f"<Contents><Key>{encode(n)}</Key><LastModified>2026-11-23T08:00:00.000Z</LastModified><ETag>{escape(objects[n]['etag'])}</ETag>"
                       f"<Size>{len(objects[n]['body'])}</Size></Contents>" for n in shown)
        if not query.get("continuation-token"):
            text += "".join(f"<CommonPrefixes><Prefix>{encode(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        more = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if cut else ""
        self.answer(200, f"<?xml version='1.0'?><ListBucketResult><Prefix>{encode(prefix)}</Prefix><IsTruncated>{'true' if cut else 'false'}</IsTruncated>{more}{text}</ListBucketResult>".encode())

    def list_uploads(self, query):
        text = "".join(f"<Upload><Key>{escape(u['key'])}</Key><UploadId>{i}</UploadId></Upload>" for i, u in uploads.items()
                       if u["key"].startswith(query.get("prefix", "")))
        self.answer(200, f"<ListMultipartUploadsResult>{text}</ListMultipartUploadsResult>".encode())

    def multipart(self, key, query, body):
        if "uploads" in query:
            counts["uploads"] += 1
            name = f"upload/+{counts['uploads']}"
            uploads[name] = {"key": key, "parts": {}, "sha256": self.headers.get("x-amz-meta-sha256")}
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>".encode())
        found = uploads.get(query["uploadId"])
        if not found or found["key"] != key:
            raise Error(404, "NoSuchUpload")
        if self.command == "PUT":
            found["parts"][int(query["partNumber"])] = body
            return self.answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')
        if self.command == "DELETE":
            del uploads[query["uploadId"]]
            return self.answer(204)
        if self.command == "GET":
            after = int(query.get("part-number-marker", 0))
            numbers = sorted(n for n in found["parts"] if n > after)
            text = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>&quot;{hashlib.md5(found['parts'][n]).hexdigest()}&quot;</ETag>"
                           f"<Size>{len(found['parts'][n])}</Size></Part>" for n in numbers[:2])
            more = f"<NextPartNumberMarker>{numbers[1]}</NextPartNumberMarker><IsTruncated>true</IsTruncated>" if len(numbers) > 2 else ""
            return self.answer(200, f"<ListPartsResult>{more}{text}</ListPartsResult>".encode())
        wanted = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>&quot;(\w+)&quot;</ETag>", body.decode())
        parts = [found["parts"].get(int(n), b"") for n, _ in wanted]
        if any(hashlib.md5(p).hexdigest() != e for p, (_, e) in zip(parts, wanted)) or any(len(p) < 5 << 20 for p in parts[:-1]):
            raise Error(400, "InvalidPart")
        self.keep(key, b"".join(parts), hashlib.md5(b"".join(hashlib.md5(p).digest() for p in parts)).hexdigest() + f"-{len(parts)}", found["sha256"])
        del uploads[query["uploadId"]]
        self.answer(200, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def log_message(self, *arguments):
        pass

server = ThreadingHTTPServer((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(os.path.join(folder, "port.new"), "w") as f:
    f.write(str(server.server_port))
os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
server.serve_forever()
