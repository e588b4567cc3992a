"""A upsd that does not behave: fake_upsd.py MODE_FILE PORT_FILE. How it answers stands in MODE_FILE, read at each question.

drip     the right answer, byte by byte
silent   nothing
close    the end of the connection
garbage  something that is no answer
flood    variables without an end
unasked  the right answer, and more
control  a word with control characters behind ERR
"""
import os
import socketserver
import sys
import time

ANSWER = b'BEGIN LIST VAR ups\nVAR ups battery.charge "66"\nVAR ups battery.runtime "900"\nVAR ups ups.status "OL"\nEND LIST VAR ups\n'


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            for _ in self.rfile:
                with open(sys.argv[1], encoding='ascii') as file:
                    mode = file.read().strip()
                if getattr(self, mode)():
                    return
        except OSError:
            pass

    def drip(self):
        for byte in ANSWER:
            self.wfile.write(bytes([byte]))
            time.sleep(0.002)

    def silent(self):
        pass

    def close(self):
        return True

    def garbage(self):
        self.wfile.write(b'HTTP/1.1 400 Bad Request\r\n\r\n')

    def flood(self):
        self.wfile.write(b'BEGIN LIST VAR ups\n')
        for _ in range(100):
            self.wfile.write(b'VAR ups x "y"\n' * 1000)

    def unasked(self):
        self.wfile.write(ANSWER + b'VAR ups ups.status "OB"\n')

    def control(self):
        self.wfile.write(b'ERR \x1b[2J\n')


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    disable_nagle_algorithm = True


server = Server(('127.0.0.1', 0), Handler)
with open(sys.argv[2] + '.new', 'w', encoding='ascii') as out:
    out.write(str(server.server_address[1]))
os.rename(sys.argv[2] + '.new', sys.argv[2])
server.serve_forever()
